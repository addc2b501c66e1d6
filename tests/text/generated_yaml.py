"""YAML written in many ways."""

from random import Random

_TEXTS = ("a", "two words", "10", "0.5", "true", "x:y", "it's", "#no", "a #b", "é", "- d", "{e", "")


class Written:
    """A YAML text with a random look. `comments` are those in it, in their order."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.comments: list[str] = []
        self._lines: list[str] = []
        self._anchors = 0
        self._mapping(0, 0)
        self._own_lines(0, 9)
        end = random.choice(("\n", "\n", "\n\n\n", "\r\n"))
        self.text = ("\r\n" if end == "\r\n" else "\n").join(self._lines) + end

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _comment(self) -> str:
        self.comments.append(f"#{self._pick('', ' ', '  ')}c{len(self.comments)}")
        return self.comments[-1]

    def _own_lines(self, least: int, most: int) -> None:
        for _ in range(self._random.choice((0, 0, 0, 1, 2))):
            self._lines.extend(self._random.choice((0, 0, 1, 3)) * [self._pick("", "", "  ")])
            column = self._random.randint(least, most)
            self._lines.append(" " * column + self._comment())

    def _end(self) -> str:
        """What may stand behind a value."""
        if self._random.random() < 0.2:
            return self._pick(" ", "   ") + self._comment()
        return self._pick("", "", "", " ")

    def _mapping(self, column: int, depth: int) -> None:
        for number in range(self._random.randint(1, 4)):
            self._own_lines(column, column + 2)
            key = self._pick(f"k{number}", f'"q {number}"', f"'s{number}'")
            self._lines.append(" " * column + key + self._pick("", "", " ") + ":")
            self._value(column, depth, may_be_list=True)

    def _sequence(self, column: int, depth: int) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._own_lines(column, column + 2)
            self._lines.append(" " * column + "-")
            if self._random.random() < 0.6:
                self._value(column, depth)
                continue
            spaces = self._random.randint(1, 4)
            below = column + 1 + spaces
            self._lines[-1] += f"{' ' * spaces}first:{self._pick(' ', '    ')}1{self._end()}"
            if self._random.random() < 0.5:
                self._mapping(below, depth + 1)

    def _value(self, column: int, depth: int, *, may_be_list: bool = False) -> None:
        """Continue the last line, which ends in `:` or `-`, with a value."""
        deeper = column + self._random.randint(1, 5)
        kinds = ["plain"] * 4 + ["quoted", "long", "block", "flow", "flow lines", "none", "alias"]
        if depth < 4:
            kinds += ["mapping"] * 3 + ["sequence"] * 3
        kind = self._pick(*kinds)
        space = self._pick(" ", " ", "   ")
        if kind == "mapping":
            self._lines[-1] += self._end()
            self._mapping(deeper, depth + 1)
        elif kind == "sequence":
            self._lines[-1] += self._end()
            self._sequence(
                column if may_be_list and self._pick("0", "1") == "0" else deeper, depth + 1
            )
        elif kind == "plain":
            self._lines[-1] += (
                space + self._pick("a", "two words", "10", "x:y", "a#b") + self._end()
            )
        elif kind == "quoted":
            self._lines[-1] += space + self._quoted() + self._end()
        elif kind == "long":
            quote = self._pick('"', "'", "")
            self._lines[-1] += f"{space}{quote}one{self._pick('', ' ')}"
            for text in ("two", "", "three")[: self._random.randint(1, 3)]:
                self._lines.append(" " * deeper + text if text else "")
            if not self._lines[-1]:
                self._lines.append(" " * deeper + "four")
            self._lines[-1] += quote + self._end()
        elif kind == "block":
            self._block(column, deeper, space)
        elif kind == "flow":
            self._lines[-1] += space + self._flow(2) + self._end()
        elif kind == "flow lines":
            self._flow_lines(deeper, space)
        elif kind == "alias":
            if self._anchors:
                name = self._random.randint(1, self._anchors)
                self._lines[-1] += f"{space}*a{name}{self._end()}"
            else:
                self._anchors += 1
                self._lines[-1] += f"{space}&a{self._anchors} anchored{self._end()}"
        else:
            self._lines[-1] += self._end()

    def _quoted(self) -> str:
        text = self._random.choice(_TEXTS)
        return f'"{text}"' if self._pick("1", "2") == "1" else "'" + text.replace("'", "''") + "'"

    def _block(self, column: int, deeper: int, space: str) -> None:
        digit = str(deeper - column) if self._pick("1", "2", "3") == "1" else ""
        chomp = self._pick("", "-", "+")
        self._lines[-1] += f"{space}{self._pick('|', '>')}{digit}{chomp}{self._end()}"
        first = self._pick("  ", "") if digit else ""
        self._lines.append(" " * deeper + first + self._pick("text", "# no comment", "k: v"))
        for _ in range(self._random.randint(0, 3)):
            text = self._pick("more", "  deeper", "# text", "", "trailing  ")
            self._lines.append(" " * deeper + text if text else "")

    def _flow(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.4:
            return self._pick("a", "10", self._quoted())
        inner = [self._flow(depth - 1) for _ in range(self._random.randint(0, 3))]
        pad, comma = self._pick("", " "), self._pick(",", ", ", ",  ")
        if self._pick("1", "2") == "1":
            return f"[{pad}{comma.join(inner)}{pad}]"
        colon = self._pick(": ", ":   ", " : ")
        keys = [self._pick(f"j{number}", f'"j{number}"') for number in range(len(inner))]
        pairs = [f"{key}{colon}{value}" for key, value in zip(keys, inner, strict=True)]
        return f"{{{pad}{comma.join(pairs)}{pad}}}"

    def _flow_lines(self, deeper: int, space: str) -> None:
        self._lines[-1] += f"{space}[{self._end()}"
        for _ in range(self._random.randint(1, 3)):
            self._own_lines(deeper, deeper + 2)
            self._lines.append(
                " " * self._random.randint(deeper, deeper + 3) + self._flow(1) + "," + self._end()
            )
            self._lines.extend(self._random.choice((0, 0, 2)) * [""])
        self._lines.append(" " * deeper + "]" + self._end())
