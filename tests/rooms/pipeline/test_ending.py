"""What an ended query leaves: labels stay few, texts stay short."""

from queryflux.history.record import KEPT_LENGTH
from queryflux.pipeline.ending import MOST_TAGS
from tests.kit.pipelines import bench, statement
from tests.kit.scripted import ScriptedEngine


async def test_tags_that_clients_invent_do_not_fill_the_metrics() -> None:
    table = bench(ScriptedEngine())
    for number in range(MOST_TAGS + 50):
        talk = table.talk(tags={"trace": str(number)})
        query = talk.submit(statement())
        await query.start()
        await query.close()
        await talk.close()
    family = [line for line in table.metrics.render().decode().splitlines() if "query_tags_total{" in line]
    assert len(family) == MOST_TAGS + 1
    assert (
        table.metric(
            "queryflux_query_tags_total", tag_key="(other)", tag_value="(other)", cluster_group="main"
        )
        == 50
    )


async def test_tags_of_the_deny_list_are_not_labels() -> None:
    table = bench(ScriptedEngine())
    assert table.pipeline.active is not None
    table.pipeline.active.untagged_metrics = frozenset({"secret"})
    query = table.talk(tags={"secret": "x", "team": "bi"}).submit(statement())
    await query.start()
    await query.close()
    text = table.metrics.render().decode()
    assert 'tag_key="team"' in text
    assert 'tag_key="secret"' not in text
    assert table.records[0].query_tags == {"secret": "x", "team": "bi"}


async def test_a_large_statement_is_kept_in_part() -> None:
    table = bench(ScriptedEngine())
    query = table.talk().submit(statement("SELECT '" + "x" * (KEPT_LENGTH * 2) + "'"))
    await query.start()
    await query.close()
    assert len(table.records[0].sql_text) == KEPT_LENGTH
