"""What is asked: a scenario of METHODS h as a plain value, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from traceview import units

INTER = ("rack", "pod", "site", "inter-site", "inter-host")
INTRA = ("nvlink", "pcie", "intra-host")
WORDS = {"inter": INTER, "intra": INTRA}
"""names for several tiers at once"""


@dataclass(frozen=True)
class Asked:
    """Changes that hold together; the default changes nothing."""

    replace: frozenset[int] = frozenset()
    """these ranks become typical"""
    balance: bool = False
    network: tuple[tuple[str, float], ...] = ()
    """(tier, group, or one of ``WORDS`` or 'all'; it is this many times as fast)"""
    staging: bool = True
    """False: no copies over PCIe, and communication that passes host memory does not"""
    data_wait: bool = True
    launch_gaps: bool = True
    overlap: bool = False
    even_tokens: bool = False
    communication: bool = True
    """False: all of it is free"""

    @property
    def only_faster(self) -> bool:
        """Nothing takes longer than it did."""
        return not self.balance and not self.even_tokens and all(factor >= 1 for _, factor in self.network)

    @property
    def title(self) -> str:
        """In words."""
        parts = [f"{units.named_ranks(sorted(self.replace))} typical"] * bool(self.replace)
        parts += [f"network {name} x{factor:g}" for name, factor in self.network]
        parts += [words for name, words in _TITLES.items() if getattr(self, name) != getattr(Asked, name)]
        return ", ".join(parts) or "nothing changes"

    @property
    def options(self) -> str:
        """As it is typed."""
        parts = [f"--replace {units.ranks(sorted(self.replace))}"] * bool(self.replace)
        parts += [f"--network {name}={factor:g}" for name, factor in self.network]
        parts += [option for name, option in _OPTIONS.items() if getattr(self, name) != getattr(Asked, name)]
        return " ".join(parts)


_TITLES = {
    "balance": "work evenly spread",
    "staging": "no staging",
    "data_wait": "input always ready",
    "launch_gaps": "CUDA graphs",
    "overlap": "perfect overlap",
    "even_tokens": "even tokens",
    "communication": "free communication",
}
_OPTIONS = {
    "balance": "--balance",
    "staging": "--no-staging",
    "data_wait": "--no-data-wait",
    "launch_gaps": "--no-launch-gaps",
    "overlap": "--overlap",
    "even_tokens": "--even-tokens",
    "communication": "--free-communication",
}
