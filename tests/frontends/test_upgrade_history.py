"""ONNX's own history of schemas against the table of upgrade rules."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from onnx import defs
import pytest

from anycann.frontends.onnx.check import NEWEST_OPSET, OPSETS
from anycann.frontends.onnx.upgrade import RULES


def history() -> dict[str, list[defs.OpSchema]]:
    """Every operator of the default domain -> its versions from the one valid at the first accepted opset on, oldest first."""
    versions: dict[str, list[defs.OpSchema]] = defaultdict(list)
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        if schema.domain == "" and schema.since_version <= NEWEST_OPSET:
            versions[schema.name].append(schema)
    for name, schemas in versions.items():
        old = [schema for schema in schemas if schema.since_version <= OPSETS[0]]
        versions[name] = old[-1:] + [schema for schema in schemas if schema.since_version > OPSETS[0]]
    return versions


CHANGES = [
    pytest.param(old, new, id=f"{name}-{old.since_version}-{new.since_version}")
    for name, schemas in sorted(history().items())
    for old, new in pairwise(schemas)
]


def what_an_old_node_could_lose(old: defs.OpSchema, new: defs.OpSchema) -> list[str]:
    """Why a node of the old form may not be one of the new form; nothing when only types were added, or things one may leave out."""
    lost = [f"attribute {name} is gone" for name in old.attributes if name not in new.attributes]
    for name, attribute in new.attributes.items():
        before = old.attributes.get(name)
        if before is None and attribute.required:
            lost.append(f"attribute {name} is required")
        if before is not None and (before.type, str(before.default_value)) != (attribute.type, str(attribute.default_value)):
            lost.append(f"attribute {name} has another type or default")
    for kind, earlier, later in (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs)):
        if len(later) < len(earlier):
            lost.append(f"an {kind} is gone")
        lost += [f"{kind} {item.name} is required" for item in later[len(earlier) :] if item.option.name == "Single"]
        lost += [
            f"{kind} {b.name} was {a.name}" for a, b in zip(earlier, later, strict=False) if a.option.name == "Optional" != b.option.name
        ]
    if old.deprecated != new.deprecated:
        lost.append("it is deprecated, or no longer")
    return lost


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_changed_form_has_a_rule_or_only_grew(old: defs.OpSchema, new: defs.OpSchema) -> None:
    rules = [rule.since for rule in RULES.get(new.name, ())]
    handled = new.since_version in rules or any(since > NEWEST_OPSET for since in rules)
    assert handled or not what_an_old_node_could_lose(old, new)


def test_the_table_has_no_rule_for_a_version_that_changed_nothing() -> None:
    versions = {name: {schema.since_version for schema in schemas} for name, schemas in history().items()}
    dead = [
        f"{name} {rule.since}"
        for name, rules in RULES.items()
        for rule in rules
        if rule.since <= NEWEST_OPSET and rule.since not in versions[name]
    ]
    assert dead == []


def test_the_rules_of_an_operator_are_in_order_and_say_what_they_do() -> None:
    for rules in RULES.values():
        assert [rule.since for rule in rules] == sorted(rule.since for rule in rules)
        assert all("->" in (rule.apply.__doc__ or "") for rule in rules)


def test_the_history_names_what_a_narrowed_form_loses() -> None:
    versions = {schema.since_version: schema for schema in history()["Clip"]}
    assert what_an_old_node_could_lose(versions[6], versions[11]) == ["attribute max is gone", "attribute min is gone"]
    assert what_an_old_node_could_lose(versions[11], versions[12]) == []
