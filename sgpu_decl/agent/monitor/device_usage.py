"""What the GPUs of a node do, as NVML tells it.

Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html. Utilisation is the
share of time in which a kernel ran, which does not say how well. The library is part of the driver;
where it is missing, or gives this user no rights, the values that it refuses are missing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_TEMPERATURE_OF_GPU = 0
_UNCORRECTED, _SINCE_REBOOT = 1, 0
_LONGEST_NAME = 96  # bytes: NVML_DEVICE_NAME_V2_BUFFER_SIZE
_XID_EVENT = 0x8
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
# nvmlClocksEventReasons: slowdowns by hardware or heat; a power cap is set by somebody.
THROTTLES = {0x4: "power cap", 0x8: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}


def installed_gpus() -> list[dict[str, Any]]:
    """The GPUs of this machine in the order of the PCI bus: the `index` of each, its `name`, its
    `memory` in bytes and its `uuid`, as far as NVML tells. Empty where there is no NVML."""
    try:
        import ctypes

        nvml = ctypes.CDLL(_LIBRARY)
        if nvml.nvmlInitWithFlags(0):
            return []
    except (OSError, ImportError, AttributeError):
        return []
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        found: list[dict[str, Any]] = []
        for number in range(count.value):
            handle = ctypes.c_void_p()
            if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
                continue  # it fell off the bus
            name, uuid = (ctypes.create_string_buffer(_LONGEST_NAME) for _ in range(2))
            memory = (ctypes.c_ulonglong * 3)()
            nvml.nvmlDeviceGetName(handle, name, _LONGEST_NAME)
            nvml.nvmlDeviceGetUUID(handle, uuid, _LONGEST_NAME)
            failed = nvml.nvmlDeviceGetMemoryInfo(handle, memory)
            found.append(
                {
                    "index": str(number),
                    "name": name.value.decode("utf-8", "replace"),
                    "uuid": uuid.value.decode("utf-8", "replace"),
                    "memory": None if failed else memory[0],
                }
            )
        return found
    finally:
        nvml.nvmlShutdown()


class DeviceUsage:
    """Some GPUs, by their numbers in the order of the PCI bus or by their UUIDs."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._handles: list[tuple[int, Any]] = []
        try:
            import ctypes

            self._ctypes = ctypes
            self._nvml: Any = ctypes.CDLL(_LIBRARY)
            if self._nvml.nvmlInitWithFlags(0):
                return
        except (OSError, ImportError, AttributeError):
            return
        for at, device in enumerate(devices):
            handle = ctypes.c_void_p()
            if device.isdigit():
                failed = self._nvml.nvmlDeviceGetHandleByIndex_v2(int(device), ctypes.byref(handle))
            else:
                failed = self._nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
            if not failed:
                self._handles.append((at, handle))
        self._events = self._watch_errors()

    def look(self) -> list[dict[str, int]]:
        """Return for each GPU its `device` (its place among those given), `utilisation` in percent,
        `memory` and `room` in MiB, `power` in W, `temperature` in degrees Celsius, `throttle` as
        bits of NVML, `ecc` errors that were not corrected, and the `xid` of an error since the last
        look. What NVML does not tell is missing."""
        if not self._handles:
            return []
        ctypes = self._ctypes
        xids = self._errors()
        found = []
        for at, handle in self._handles:
            one = {"device": at}
            rates = (ctypes.c_uint * 2)()
            if self._ask("nvmlDeviceGetUtilizationRates", handle, rates):
                one["utilisation"] = rates[0]
            memory = (ctypes.c_ulonglong * 3)()
            if self._ask("nvmlDeviceGetMemoryInfo", handle, memory):
                one["room"], one["memory"] = memory[0] >> 20, memory[2] >> 20
            power, degrees = ctypes.c_uint(), ctypes.c_uint()
            if self._ask("nvmlDeviceGetPowerUsage", handle, ctypes.byref(power)):
                one["power"] = round(power.value / 1000)
            if self._ask(
                "nvmlDeviceGetTemperature", handle, _TEMPERATURE_OF_GPU, ctypes.byref(degrees)
            ):
                one["temperature"] = degrees.value
            bits, errors = ctypes.c_ulonglong(), ctypes.c_ulonglong()
            if any(self._ask(name, handle, ctypes.byref(bits)) for name in _REASONS):
                one["throttle"] = bits.value & sum(THROTTLES)
            if self._ask(
                "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_REBOOT,
                ctypes.byref(errors),
            ):  # fmt: skip
                one["ecc"] = errors.value
            if handle.value in xids:
                one["xid"] = xids[handle.value]
            found.append(one)
        return found

    @property
    def name(self) -> str | None:
        """What the driver calls the first of them."""
        if not self._handles:
            return None
        text = self._ctypes.create_string_buffer(_LONGEST_NAME)
        if not self._ask("nvmlDeviceGetName", self._handles[0][1], text, _LONGEST_NAME):
            return None
        return str(text.value.decode("utf-8", "replace")) or None

    def _ask(self, name: str, *arguments: Any) -> bool:
        call = getattr(self._nvml, name, None)
        return call is not None and call(*arguments) == 0

    def _watch_errors(self) -> Any:
        events = self._ctypes.c_void_p()
        if not self._handles or not self._ask("nvmlEventSetCreate", self._ctypes.byref(events)):
            return None
        kind = self._ctypes.c_ulonglong(_XID_EVENT)
        for _, handle in self._handles:
            self._ask("nvmlDeviceRegisterEvents", handle, kind, events)
        return events

    def _errors(self) -> dict[int, int]:
        """The last Xid of each GPU since the last call, by its handle."""
        if self._events is None:
            return {}
        ctypes = self._ctypes
        fields = (("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong),
                  ("data", ctypes.c_ulonglong), ("parts", ctypes.c_uint * 2))  # fmt: skip
        event = type("nvmlEventData_t", (ctypes.Structure,), {"_fields_": fields})()
        found: dict[int, int] = {}
        while self._ask("nvmlEventSetWait_v2", self._events, ctypes.byref(event), 0):
            found[event.device] = event.data
            if len(found) > len(self._handles):
                break
        return found
