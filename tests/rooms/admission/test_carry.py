"""Limits and waiters across a change of configuration."""

import asyncio

import pytest

from queryflux.admission.carry import carry_groups, carry_members, remembered
from queryflux.admission.slots import Admission, Group, Member, Slot, Ticket
from queryflux.model.errors import NoCapacity, Unavailable
from tests.kit.clock import ManualClock, settle


class House:
    """Admission under configurations that change. A configuration: limits by cluster, members by group."""

    def __init__(self, clusters: dict[str, int | None], groups: dict[str, list[str]]) -> None:
        self.clock = ManualClock()
        self.admission = Admission(self.clock)
        self.members: dict[str, Member] = {}
        self.groups: dict[str, Group] = {}
        self.change(clusters, groups)

    def change(
        self,
        clusters: dict[str, int | None],
        groups: dict[str, list[str]],
        disabled: tuple[str, ...] = (),
        wait_secs: float = 300,
    ) -> None:
        fresh = {name: Member(name, limit=limit) for name, limit in clusters.items()}
        after = {
            name: Group(name, [fresh[it] for it in members], wait_secs=wait_secs)
            for name, members in groups.items()
        }
        members = carry_members(self.members, fresh)
        carry_groups(self.admission, self.groups, after, members, disabled)
        self.members, self.groups = remembered(self.members, members), after

    def enter(self, group: str) -> Ticket:
        return self.admission.enter(self.groups[group])

    def run(self, group: str) -> Slot:
        slot = self.enter(group).slot
        assert slot is not None
        return slot


async def test_who_runs_still_counts_after_the_change() -> None:
    house = House({"a": 2}, {"g": ["a"]})
    first = house.run("g")
    house.change({"a": 2}, {"g": ["a"]})
    house.run("g")
    assert house.enter("g").slot is None
    first.release()
    assert house.members["a"].running == 2  # the waiter has it


async def test_a_lowered_cap_grants_nothing_until_below_it() -> None:
    house = House({"a": 3}, {"g": ["a"]})
    slots = [house.run("g") for _ in range(3)]
    house.change({"a": 1}, {"g": ["a"]})
    waiter = house.enter("g")
    for slot in slots[:2]:
        slot.release()
        assert waiter.slot is None
    slots[2].release()
    assert waiter.slot is not None


async def test_a_raised_cap_lets_waiters_go_on_in_their_order() -> None:
    house = House({"a": 1}, {"g": ["a"], "h": ["a"]})
    house.run("g")
    waiters = [house.enter(group) for group in ("h", "g", "h")]
    house.change({"a": 3}, {"g": ["a"], "h": ["a"]})
    assert [waiter.slot is not None for waiter in waiters] == [True, True, False]
    house.change({"a": None}, {"g": ["a"], "h": ["a"]})
    assert waiters[2].slot is not None


async def test_a_new_member_takes_waiters() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.run("g")
    waiter = house.enter("g")
    house.change({"a": 1, "b": 1}, {"g": ["a", "b"]})
    assert waiter.slot is not None
    assert waiter.slot.member.name == "b"


async def test_waiters_of_a_removed_group_are_told() -> None:
    house = House({"a": 1}, {"g": ["a"], "h": ["a"]})
    house.run("g")
    waiting = asyncio.ensure_future(house.enter("h").wait())
    await settle()
    house.change({"a": 1}, {"g": ["a"]})
    with pytest.raises(Unavailable, match="'h' was removed"):
        await waiting
    assert house.clock.pending == 0


async def test_waiters_of_a_disabled_group_are_told() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.run("g")
    waiting = asyncio.ensure_future(house.enter("g").wait())
    await settle()
    house.change({"a": 1}, {"g": ["a"]}, disabled=("g",))
    with pytest.raises(Unavailable, match="'g' was disabled"):
        await waiting


async def test_waiters_whose_cap_becomes_zero_are_told() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.run("g")
    waiting = asyncio.ensure_future(house.enter("g").wait())
    await settle()
    house.change({"a": 0}, {"g": ["a"]})
    with pytest.raises(NoCapacity):
        await waiting


async def test_a_removed_cluster_that_comes_back_while_it_is_busy_still_counts() -> None:
    house = House({"a": 1, "b": 1}, {"g": ["a", "b"]})
    slot = house.run("g")
    assert slot.member.name == "a"
    house.change({"b": 1}, {"g": ["b"]})
    house.change({"a": 1}, {"g": ["a"]})
    waiter = house.enter("g")
    assert waiter.slot is None
    slot.release()
    assert waiter.slot is not None


async def test_a_member_that_is_down_stays_down() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.admission.mark_down(house.members["a"], "refused")
    house.change({"a": 5}, {"g": ["a"]})
    with pytest.raises(Unavailable, match="refused"):
        house.enter("g")


async def test_a_waiter_that_leaves_after_the_change_leaves_the_new_queue() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    slot = house.run("g")
    first, second = house.enter("g"), house.enter("g")
    house.change({"a": 1}, {"g": ["a"]})
    first.leave()
    slot.release()
    assert second.slot is not None


async def test_a_waiter_still_times_out_after_the_change() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.run("g")
    waiting = asyncio.ensure_future(house.enter("g").wait())
    house.change({"a": 1}, {"g": ["a"]})
    await house.clock.advance(301)
    assert waiting.done()
    assert waiting.exception() is not None
    assert not house.groups["g"].waiters


async def test_what_an_operator_set_stays_until_the_clusters_own_settings_change() -> None:
    house = House({"a": 1, "b": 1}, {"g": ["a"], "h": ["b"]})
    house.run("g")
    waiter = house.enter("g")
    house.members["a"].limit = 2
    house.admission.changed(house.members["a"])
    assert waiter.slot is not None
    house.change({"a": 1, "b": 5}, {"g": ["a"], "h": ["b"]})
    assert (house.members["a"].limit, house.members["b"].limit) == (2, 5)
    house.change({"a": 3, "b": 5}, {"g": ["a"], "h": ["b"]})
    assert house.members["a"].limit == 3


async def test_waiters_of_a_member_that_an_operator_turned_off_are_told() -> None:
    house = House({"a": 1}, {"g": ["a"]})
    house.run("g")
    waiting = asyncio.ensure_future(house.enter("g").wait())
    await settle()
    house.members["a"].enabled = False
    house.admission.changed(house.members["a"])
    with pytest.raises(Unavailable, match="a: disabled"):
        await waiting
