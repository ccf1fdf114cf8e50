"""What peers can cause on a tape is bounded, and what is left out is counted."""

from islands.actors.role_actor import Context, RoleActor
from islands.files.tape_writing import MemoryTape
from islands.layout.leaves import Fragment, Leaf, layout_of
from islands.protocol.settings.choices import Pattern
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry_limit import ENTRIES_PER_S, EntryLimit
from islands.protocol.tape.process_entries import Refused
from islands.protocol.tape.round_entries import Journalled
from messaging.links.memory_link import MemoryNetwork


def test_so_many_entries_a_second_and_a_count_of_the_rest() -> None:
    limit = EntryLimit(3)
    assert [limit.left_out(0.1) for _ in range(5)] == [0, 0, 0, None, None]
    assert [limit.left_out(1.5) for _ in range(2)] == [2, 0]
    assert limit.left_out(1e6) == 0


async def test_refusals_by_the_thousand_leave_few_entries_and_no_other_is_missed() -> None:
    layout = layout_of([Leaf("w", (1,))], [Fragment(0, (), 1)], Pattern.BALANCED, {})
    tape = MemoryTape()
    actor = RoleActor[object]("hub", Context(RunSettings(), layout, MemoryNetwork(), tape))
    for number in range(10_000):
        actor.record(Refused(str(number), "no"))
    actor.record(Journalled(1))
    assert sum(b'"refused"' in line for line in tape.lines) <= 2 * ENTRIES_PER_S
    assert b'"journalled"' in tape.lines[-1]
