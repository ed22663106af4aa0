"""The findings: verdicts on made-up scores whose answer is known by construction."""

import math

import numpy as np
import pandas as pd
import pytest
from made_findings import AGREES, CONTRADICTS, DEPTH, MAPS, form_rows, metric_rows, model_rows, sink_curves, tables

import layerwise
from layerwise.core.errors import InputError
from layerwise.verbs.lab.reproduce.findings import (
    DEVELOPMENT,
    ENCODERS,
    HELD_OUT,
    LANGUAGE,
    advantages,
    correlations,
    judge,
    over_models,
    over_tasks,
    recommended,
    valleys,
)


def verdicts(scores, metrics):
    return judge(scores, metrics)["claims"].set_index("claim").verdict


def test_models_that_agree_confirm_the_claims():
    found = verdicts(*tables(dict.fromkeys(LANGUAGE, AGREES)))
    assert (found[[1, 2, 3]] == "confirmed").all()
    assert (found[[4, 5, 6, 7, 8]] == "not run yet").all(), (
        "the encoders, the metrics and the rounded models are missing"
    )


def test_two_models_that_contradict_refute_and_one_leaves_it_undecided():
    first, second, third = LANGUAGE
    two = verdicts(*tables({first: CONTRADICTS, second: CONTRADICTS, third: AGREES}))
    one = verdicts(*tables({first: CONTRADICTS, second: AGREES, third: AGREES}))
    assert (two[[1, 2, 3]] == "refuted").all() and (one[[1, 2, 3]] == "undecided").all()
    assert (verdicts(*tables({first: CONTRADICTS, second: CONTRADICTS}))[[1, 2, 3]] == "refuted").all(), (
        "even if all others agree"
    )


def test_what_is_missing_is_named_and_development_models_never_count():
    claims = judge(*tables({LANGUAGE[0]: AGREES} | dict.fromkeys(DEVELOPMENT, CONTRADICTS)))
    row = claims["claims"].set_index("claim").loc[1]
    assert row.verdict == "not run yet" and row.agree == LANGUAGE[0] and row.missing == "; ".join(LANGUAGE[1:])
    shown = claims["answers"].query("claim == 1").set_index("model")
    assert list(shown.answer[list(DEVELOPMENT)]) == ["no", "no"] and not shown.counted[list(DEVELOPMENT)].any()
    empty = verdicts(*(table[:0] for table in tables({LANGUAGE[0]: AGREES})))
    assert (empty == "not run yet").all() and len(empty) == 8


@pytest.mark.parametrize(
    ("changed", "claim", "answer"),
    [
        ({"prompteol": (8, 2.0)}, 1, "yes"),  # the second before the last
        ({"prompteol": (7, 2.0)}, 1, "no"),
        ({"prompteol": (7, 0.9)}, 1, "neither"),  # lower, without an advantage
        ({"plain": (7, 3.0)}, 2, "yes"),
        ({"plain": (8, 3.0)}, 2, "neither"),  # one of the last three
        ({"plain": (4, 0.9)}, 2, "neither"),
        ({"plain": (10, 0.0)}, 2, "no"),  # the last itself: no advantage
        ({"echo": (5, 0.5)}, 3, "yes"),
        ({"echo": (4, 0.5)}, 3, "no"),  # not later
        ({"echo": (9, 3.5)}, 3, "no"),  # later, but a larger advantage
    ],
)
def test_the_answer_of_a_model(changed, claim, answer):
    found = judge(*tables({LANGUAGE[0]: AGREES | changed}))["answers"]
    assert found.query("claim == @claim").iloc[0].answer == answer


def test_the_two_maps_may_disagree():
    """Claim 1 needs both and is contradicted by one; claim 2 needs one; claim 3 and 7 need both, either way."""
    good = pd.DataFrame(model_rows(LANGUAGE[0], AGREES))
    bad = pd.DataFrame(model_rows(LANGUAGE[0], CONTRADICTS))
    mixed = pd.concat([good[good["map"] != "none"], bad[bad["map"] == "none"]])
    answers = (
        judge(mixed, tables({LANGUAGE[0]: AGREES})[1])["answers"].query("model == @LANGUAGE[0]").set_index("claim")
    )
    assert list(answers.answer[[1, 2, 3]]) == ["no", "yes", "neither"]


def encoder_scores(gains):
    rows = []
    for model, gain in zip(ENCODERS, gains, strict=True):
        rows += [row for one in MAPS for row in form_rows(model, "plain", 3, gain, one, "float32", normed=False)]
    return pd.DataFrame(rows)


def test_encoders_are_compared_with_their_last_layer_where_there_is_no_final_norm():
    none = tables({})[1]
    for gains, verdict in (((0.5, 1.0), "confirmed"), ((1.5, 3.0), "refuted"), ((0.5, 3.0), "undecided")):
        assert verdicts(encoder_scores(gains), none)[7] == verdict
    assert set(advantages(encoder_scores((0.5, 3.0))).gain) == {0.5, 3.0}


def test_a_layer_is_judged_on_the_half_that_did_not_choose_it():
    """Layer 2 is best on half A and layer 5 on half B, each worse than the last on the other half."""
    rows = pd.DataFrame(form_rows(LANGUAGE[0], "plain", 2, 0.0))
    for layer, better in (("2", "A"), ("5", "B")):
        mine = rows.layer == layer
        rows.loc[mine, "score"] = np.where(rows.half[mine] == better, 55.0, 48.0)
    (row,) = advantages(rows).itertuples()
    assert (row.chosen_a, row.chosen_b) == ("2", "5") and row.gain == row.low == row.high == -2.0
    assert row.best in ("2", "5"), "by the mean of all tasks, both are 1.5 points above the last"


def test_pick_has_to_beat_all_three_baselines():
    def scores(picked):
        return pd.DataFrame([row for model in HELD_OUT for row in model_rows(model, AGREES, picked)])

    none = tables({})[1]
    assert verdicts(scores(60.0), none)[4] == "confirmed"
    assert verdicts(scores(47.0), none)[4] == "refuted", "above token embeddings (45), below the last layer (50)"
    assert verdicts(scores(50.0), none)[4] == "undecided", "as good as the last layer"
    found = recommended(scores(60.0)).query("model == @LANGUAGE[0]").set_index("baseline").gain
    assert dict(found) == {"last layer, mean": 10.0, "prompteol as published": 10.0, "token embeddings": 15.0}


def test_the_valley_is_one_token_where_entropy_returns_without_it():
    none = pd.DataFrame(model_rows(LANGUAGE[0], AGREES))
    for without, expected in (((2.5,) * 5, "confirmed"), ((2.5,) * 4 + (1.5,), "refuted"), ((2.5,) * 4, "not run yet")):
        rows = [
            row for model, one in zip(HELD_OUT, without, strict=False) for row in metric_rows(model, sink_curves(one))
        ]
        assert verdicts(none, pd.DataFrame(rows))[6] == expected
    no_sink = sink_curves(2.5) | {("first_norm_ratio", "all"): [2.0] * (DEPTH + 1)}
    rows = [row for model in HELD_OUT for row in metric_rows(model, no_sink)]
    assert verdicts(none, pd.DataFrame(rows))[6] == "undecided", "no model has anything to say"
    (row,) = valleys(pd.DataFrame(metric_rows("a", sink_curves(2.5)))).itertuples()
    assert (row.sink_layers, row.layer, row.depth, row.rise) == (6, 3, 2.0, 1.5)


def test_one_metric_that_goes_with_scores_everywhere_refutes_that_none_can_choose():
    models = (*HELD_OUT, *DEVELOPMENT)
    scores = pd.DataFrame([row for model in models for row in model_rows(model, AGREES)])
    for layer in range(DEPTH + 1):
        scores.loc[(scores.layer == str(layer)) & (scores.input == "plain"), "score"] = 40.0 + layer
    up, down = np.arange(DEPTH + 1.0), -np.arange(DEPTH + 1.0)

    def of(**by_sign):
        rows = [
            row for place, model in enumerate(models) for name, signs in by_sign.items()
            for row in metric_rows(model, {(name, "all"): up if signs[place % len(signs)] else down})
        ]  # fmt: skip
        return pd.DataFrame(rows)

    assert verdicts(scores, of(curvature=(1,), dime=(1, 0)))[5] == "refuted"
    assert verdicts(scores, of(curvature=(0, 1), dime=(1, 0)))[5] == "confirmed"
    found = correlations(scores, of(curvature=(1,)))
    assert found.spearman.tolist() == pytest.approx([1.0] * len(models))
    missing = of(curvature=(1,)).query("model != 'gemma3-270m'")
    assert verdicts(scores, missing)[5] == "not run yet", "its text names the development models too"


def test_rounding_is_compared_with_the_same_model_in_the_same_dtype():
    def scores(four, two, whole="bfloat16"):
        rows = model_rows("smollm2-135m", AGREES, dtype=whole)
        return pd.DataFrame(rows + model_rows("smollm2-135m-4bit", four) + model_rows("smollm2-135m-2bit", two))

    none = tables({})[1]
    assert verdicts(scores(AGREES, AGREES), none)[8] == "confirmed"
    assert verdicts(scores(CONTRADICTS, AGREES), none)[8] == "refuted"
    assert verdicts(scores(AGREES, CONTRADICTS), none)[8] == "undecided", "only at 2 bits"
    assert verdicts(scores(AGREES, AGREES, whole="float32"), none)[8] == "not run yet"


def test_intervals():
    gains = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    low, high = over_tasks(gains)
    assert 4.5 - 1.96 * gains.std() / 8**0.5 == pytest.approx(low, abs=0.15) and low < 4.5 < high
    mean, low, high = over_models([1.0, 2.0, 3.0])
    assert mean == 2.0 and high - mean == pytest.approx(4.302653 / 3**0.5) == mean - low
    assert math.isnan(over_models([1.0])[1])


def test_the_command_judges_the_tables_of_a_folder(tmp_path):
    scores, metrics = tables(dict.fromkeys(LANGUAGE, AGREES), metric_rows(LANGUAGE[0], sink_curves(2.5)))
    scores.to_csv(tmp_path / "scores.csv", index=False)
    metrics.to_csv(tmp_path / "metrics.csv", index=False)
    made = layerwise.lab.reproduce("findings", out=tmp_path / "out", scale="released", data=tmp_path)
    names = {file.name for file in made.files}
    assert names >= {"claims.csv", "answers.csv", "advantages.csv", "valleys.csv", "findings.png"}
    claims = pd.read_csv(made.folder / "claims.csv").set_index("claim")
    assert claims.verdict[1] == "confirmed" and claims.verdict[8] == "not run yet"
    scores.drop(columns="dtype").to_csv(tmp_path / "scores.csv", index=False)
    with pytest.raises(InputError, match="scores.csv has no column 'dtype'"):
        layerwise.lab.reproduce("findings", out=tmp_path / "again", scale="released", data=tmp_path)
