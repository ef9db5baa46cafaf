"""How corrections of the syntax tree are written: rules by kind of node, all of a pair's in one pass."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

Transform = Callable[[exp.Expr], exp.Expr]
Rule = Callable[[Any], exp.Expr | None]
"""From a node to what stands in its place; None leaves it."""
Rules = Mapping[type[exp.Expr], Rule]
Calls = Mapping[str, Callable[[list[exp.Expr]], exp.Expr | None]]
"""Functions that the parser does not know, by their name in capitals: from arguments to a replacement."""

_LARGEST_GROWTH = 5_000
_GROWTH_PER_NODE = 40
"""Nodes that a pass may write, and as many more for each node that it looks at."""


def rewritten(*tables: Rules, calls: Calls | None = None) -> Transform:
    """A transform that goes over the tree once, inner nodes first. Of several rules for a kind of node, the
    first that has an answer counts. Some write their operand twice, so that calls within calls would grow
    without end: the transform raises RecursionError."""
    rules: dict[type[exp.Expr], list[Rule]] = {}
    for table in tables:
        for kind, rule in table.items():
            rules.setdefault(kind, []).append(rule)
    if calls:
        rules.setdefault(exp.Anonymous, []).append(_by_name(calls))

    def fix(root: exp.Expr) -> exp.Expr:
        found = [node for node in root.walk() if type(node) in rules]
        left = _LARGEST_GROWTH + _GROWTH_PER_NODE * len(found)
        for node in reversed(found):
            for rule in rules[type(node)]:
                new = rule(node)
                if new is not None:
                    left -= sum(1 for _ in new.walk())
                    if left < 0:
                        raise RecursionError
                    root = replaced(root, node, new)
                    break
        return root

    return fix


def _by_name(calls: Calls) -> Rule:
    def rule(node: exp.Anonymous) -> exp.Expr | None:
        write = calls.get(node.name.upper())
        return write(node.expressions) if write is not None else None

    return rule


def replaced(root: exp.Expr, node: exp.Expr, new: exp.Expr) -> exp.Expr:
    """The tree with ``new`` in the place of ``node``, also where that is all of it."""
    if node is root:
        return new
    node.replace(new)
    return root


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A function of the target, of copies of its arguments."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def number(value: int | str) -> exp.Expr:
    """A numeric literal."""
    return exp.Literal.number(value)


def string(value: str) -> exp.Expr:
    """A string literal."""
    return exp.Literal.string(value)


def text_of(node: exp.Expr | None) -> str | None:
    """The text of a string literal; None for anything else."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def integer_of(node: exp.Expr | None) -> int | None:
    """The value of an integer literal, with its sign; None for anything else."""
    if isinstance(node, exp.Neg):
        inner = integer_of(node.this)
        return -inner if inner is not None else None
    if isinstance(node, exp.Paren):
        return integer_of(node.this)
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        return int(node.this)
    return None


def when(condition: exp.Expr, value: exp.Expr, default: exp.Expr | None = None) -> exp.Expr:
    """CASE WHEN ... THEN ... [ELSE ...] END."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default)
