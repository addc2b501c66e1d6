"""The codes by which NVIDIA's driver reports errors of a GPU (Xid): what they mean, and whose fault
they are.

Meanings and faults are those of NVIDIA's catalog for Ampere and newer:
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
Codes that it calls unused, and those of video and image engines, are left out. One that it explains
as a fault of an application is the user's; one that needs a reset of the GPU, a restart of the node
or a repair is the machine's. For the others it tells neither.
"""

from __future__ import annotations

XIDS = {
    8: (None, "the GPU stopped processing"),
    11: (None, "a command stream for the GPU was invalid or corrupted"),
    13: (
        "error",
        "a kernel failed, most often by an index that is out of bounds",
    ),
    25: (None, "a command stream for the GPU was invalid"),
    31: ("error", "a kernel used an address that is not mapped"),
    32: ("infra", "a command stream was corrupted on its way over the PCIe bus"),
    38: (None, "the firmware of the driver failed"),
    39: (None, "a copy engine failed"),
    43: ("error", "the program hit a fault of its own and must end; the GPU is healthy"),
    44: (None, "the GPU failed while it switched between programs"),
    45: (None, "the driver cleaned up after a program that ended, or after an earlier error"),
    46: ("infra", "the GPU stopped processing and needs a reset"),
    48: ("infra", "the memory of the GPU has an error that ECC cannot correct"),
    54: ("infra", "auxiliary power is not connected to the GPU"),
    62: ("infra", "a micro-controller of the GPU halted"),
    63: ("infra", "the GPU replaced a row of its memory; a reset activates that"),
    64: ("infra", "the GPU could not replace a row of its memory"),
    69: (None, "the compute engine refused a command"),
    74: ("infra", "an NVLink connection failed, here or at its other end"),
    79: ("infra", "the GPU has fallen off the PCIe bus"),
    92: ("infra", "the memory of the GPU has many errors that ECC corrects"),
    94: ("infra", "the memory of the GPU has an error, which is contained to this program"),
    95: ("infra", "the memory of the GPU has an error that affects all its programs"),
    109: ("infra", "the GPU did not switch between programs in time"),
    110: ("infra", "the GPU reported a security fault, as failing hardware does"),
    119: ("infra", "the system processor of the GPU (GSP) did not answer"),
    120: ("infra", "the system processor of the GPU (GSP) failed"),
    121: ("infra", "the connection to the Grace CPU corrected errors"),
    136: ("infra", "an NVLink connection could not be set up"),
    137: ("error", "a kernel used an address of another GPU that is not mapped"),
    140: ("infra", "the memory of the GPU has an error that ECC cannot correct"),
    143: ("infra", "the GPU could not be initialized"),
    144: ("infra", "NVLink failed (SAW)"),
    145: ("infra", "NVLink failed (RLW)"),
    146: ("infra", "NVLink failed (TLW)"),
    147: ("infra", "NVLink failed (TREX)"),
    148: ("infra", "NVLink failed (NVLPW)"),
    149: ("infra", "NVLink failed (NETIR)"),
    150: ("infra", "NVLink failed (MSE)"),
    154: ("infra", "the driver asks for a reset of the GPU or a restart of the node"),
    155: ("infra", "an NVLink connection went down"),
    156: ("infra", "the GPU retired a part of itself; a reset activates that"),
    158: ("infra", "the GPU did not answer in time"),
    167: ("infra", "the PCIe bus did not answer in time"),
    171: ("infra", "the DRAM of the GPU has an error that ECC cannot correct"),
    172: ("infra", "the SRAM of the GPU has an error that ECC cannot correct"),
}
"""Of each code: whose fault it is (`error` for the user's, `infra` for the machine's, None where
that is not certain), and what it means."""
