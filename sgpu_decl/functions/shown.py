"""A plan that a notebook shows."""

from dataclasses import fields
from datetime import UTC, datetime

from sgpu_decl.model.plan import Plan

__all__ = ["ShownPlan"]


class ShownPlan(Plan):
    """A plan as any other, which shows itself to people."""

    __slots__ = ()

    @classmethod
    def of(cls, plan: Plan) -> "ShownPlan":
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})

    def __str__(self) -> str:
        from sgpu_decl.views.plan_text import render

        return render(self, now=datetime.now(UTC))

    def _repr_html_(self) -> str:
        from sgpu_decl.views.plan_html import render

        return render(self, now=datetime.now(UTC))
