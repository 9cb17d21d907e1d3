"""The faults' branch of the error tree.

R2cclError                  (r2ccl_core.errors)
└── UsageError
    └── FaultError          a fault was asked for that cannot or must not be injected
        ├── UnknownFaultError      no fault of that name, or no parameter of that name
        ├── NotPossibleError       the target lacks what this fault takes: a switch port, a bus address
        └── ProtectedNicError      the target carries SSH or management; cutting it would lock us out
"""

from r2ccl_core.errors import UsageError


class FaultError(UsageError):
    """A fault was asked for that cannot, or must not, be injected."""


class UnknownFaultError(FaultError):
    """There is no fault, or no parameter of a fault, of that name."""


class NotPossibleError(FaultError):
    """The target lacks what the fault takes."""


class ProtectedNicError(FaultError):
    """The target carries SSH or management traffic."""
