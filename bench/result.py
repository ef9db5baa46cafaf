"""What a benchmark gives back."""

from dataclasses import dataclass, field


@dataclass
class Result:
    """``figures`` are named with their unit; ``peer`` says beside what they were measured; ``ratio`` holds
    ours over the peer's (or as its name says). ``skipped`` says why nothing was measured."""

    figures: dict[str, float] = field(default_factory=dict)
    peer: str = ""
    ratio: dict[str, float] = field(default_factory=dict)
    notes: str = ""
    skipped: str = ""
