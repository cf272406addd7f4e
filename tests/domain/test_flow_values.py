"""References and conditions: what a node takes from others, as data."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.conditions import as_condition, evaluate
from tidemill.domain.references import (
    MissingPath,
    Reference,
    StoredReference,
    decode,
    encode,
    look_up,
    read_stored,
    references_in,
    stored_of,
    stored_references,
)
from tidemill.errors import UsageError

ID = UUID(int=7)
OTHER = UUID(int=8)


def ref(*path: str | int, id: UUID = ID) -> Reference:
    return Reference(StoredReference(id, path), "parse.result")


def test_attributes_and_items_of_a_result_become_a_path() -> None:
    assert stored_of(ref().rows[0]["id"]) == StoredReference(ID, ("rows", 0, "id"))


def test_a_key_that_json_cannot_look_up_is_refused() -> None:
    with pytest.raises(UsageError, match="index of a list"):
        ref()[1.5]  # type: ignore[index]


def test_references_inside_lists_and_dictionaries_are_written_as_data() -> None:
    value, found = encode({"a": [ref(), 1], "b": {"c": ref("n", id=OTHER)}})
    assert value == {"a": [{"$ref": [str(ID)]}, 1], "b": {"c": {"$ref": [str(OTHER), "n"]}}}
    assert found == [StoredReference(ID), StoredReference(OTHER, ("n",))]


def test_the_references_of_arguments_are_found() -> None:
    assert [stored_of(found).id for found in references_in({"a": (ref(), [ref(id=OTHER)])})] == [ID, OTHER]


def test_a_value_that_is_not_json_next_to_a_reference_is_refused() -> None:
    with pytest.raises(UsageError, match="not plain JSON"):
        encode([ref(), object()])


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="key of a JSON object"):
        encode({1: ref()})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["$ref", "$refs", "$$ref", "a"]) | st.text(), inner)
    ),
)


@given(json_values)
def test_a_users_own_value_survives_whatever_its_keys_are(value: object) -> None:
    written, found = encode(value)
    assert not found
    assert decode(json.loads(json.dumps(written)), lambda reference: pytest.fail(f"{reference}")) == value


def test_references_are_replaced_when_the_job_begins() -> None:
    written, _ = encode({"rows": ref(), "more": [ref("n")]})
    assert decode(written, lambda reference: reference.path) == {"rows": (), "more": [("n",)]}
    assert stored_references(written) == [StoredReference(ID), StoredReference(ID, ("n",))]


def test_the_list_of_a_groups_results_is_another_kind_of_reference() -> None:
    stored = StoredReference(ID, (), many=True)
    assert read_stored(stored.data()) == stored
    assert read_stored({"$ref": []}) is None


def test_a_path_that_a_result_does_not_have_names_the_missing_part() -> None:
    assert look_up({"a": [1, 2]}, ("a", 1)) == 2
    with pytest.raises(MissingPath, match="has no 'b'"):
        look_up({"a": 1}, ("b",))
    with pytest.raises(MissingPath, match="has no 'c'"):
        look_up(5, ("c",))


@pytest.mark.parametrize(
    ("condition", "result", "holds"),
    [
        (ref().errors > 0, {"errors": 1}, True),
        (ref().errors > 0, {"errors": 0}, False),
        (ref().errors > 0, {"errors": None}, False),
        (ref().errors > 0, {}, False),
        (ref().state == "ok", {"state": "ok"}, True),
        (ref().state != "ok", {"state": "ok"}, False),
        (ref().state.is_in(["a", "b"]), {"state": "b"}, True),
        ((ref().n >= 1) & (ref().n <= 3), {"n": 2}, True),
        ((ref().n < 1) | (ref().n == 5), {"n": 5}, True),
        (~(ref().n < 1), {"n": 5}, True),
        (ref().ok & ~ref().bad, {"ok": True, "bad": False}, True),
        (ref().a == ref().b, {"a": 1, "b": 1}, True),
    ],
)
def test_a_condition_is_data_that_a_worker_evaluates(
    condition: object, result: object, *, holds: bool
) -> None:
    made = as_condition(condition)

    def read(operand: object) -> object:
        stored = read_stored(operand)
        if stored is None:
            return operand
        try:
            return look_up(result, stored.path)
        except MissingPath:
            return None

    assert evaluate(json.loads(json.dumps(made.test)), read) is holds
    assert made.needs == {ID}


def test_a_condition_says_what_it_compares() -> None:
    assert as_condition((ref().n > 3) & ~ref().ok).text == "(parse.result.n > 3) and (not (parse.result.ok))"


def test_python_cannot_decide_a_condition_before_the_flow_runs() -> None:
    with pytest.raises(UsageError, match="before the flow runs"):
        bool(ref().n > 3)
    with pytest.raises(UsageError, match="before the flow runs"):
        bool(ref())
    with pytest.raises(UsageError, match="before the flow runs"):
        list(ref())
    with pytest.raises(UsageError, match="not a condition"):
        as_condition(True)


def test_an_operator_of_a_newer_release_is_not_guessed() -> None:
    with pytest.raises(UsageError, match="unknown operator"):
        evaluate(["xor", 1, 2], lambda operand: operand)
