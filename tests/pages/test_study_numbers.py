"""Measured numbers in the READMEs of studies are those of their tables: the sentences and lines that hold them are made
again from the CSV and must stand in the page."""

import json
import re
import runpy

import numpy as np
import pandas as pd
import pytest
from places import ROOT, script

from layerwise.verbs.shrink.ways import TRAINING_ADDS

STUDIES = ROOT / "studies"
RAW, UNIT = ("raw", "all"), ("centered_unit", "no_first")


def page(study):
    return words("studies", study, "README.md")


def words(*path):
    """A page as one line: where it is wrapped does not matter."""
    return " ".join(STUDIES.parent.joinpath(*path).read_text().split())


def line(*cells):
    return " ".join(["|", *(f"{cell} |" if cell != "" else "|" for cell in cells)])


def numbers(values, digits=2):
    return [f"{value:.{digits}f}" for value in values]


# ---- studies/scan


def scan_curves():
    curves = pd.read_csv(STUDIES / "scan/curves.csv")
    return curves[curves.readout == "raw"].set_index(["model", "layer"])


def prompt_curve(model, rows, tokens):
    return scan_curves().loc[model][f"prompt_entropy {rows} {tokens}"]


def lines_of_scan():
    decoders = {"smollm2-135m": "SmolLM2-135M (30 layers)", "gemma3-270m": "Gemma3-270M (18)"}
    encoders = {"gte-small": "gte-small (12)", "all-minilm-l6-v2": "all-MiniLM-L6-v2 (6)"}
    for model, shown in (decoders | encoders).items():
        for rows in ("raw", "centered_unit"):
            for tokens in ("all", "no_first") if model in decoders else ("all",):
                v = prompt_curve(model, rows, tokens)
                least = f"{v.min():.2f} (layer {v.idxmin()})"
                yield line(shown, rows, tokens, f"{v.iloc[0]:.2f}", least, f"{v.iloc[-1]:.2f}")
                shown = ""


def claims_about_decoders():
    curves = scan_curves()
    smol = prompt_curve("smollm2-135m", "raw", "all")
    yield f"{smol[11]:.2f} nats at layer 11, {smol[12]:.2f} at layer 12, {smol[20]:.2f} at 20, {smol[24]:.2f} at 24"
    yield f"{smol[28]:.2f} at 28, {smol[29]:.2f} at 29"
    for tokens in ("no_first", "no_sinks"):
        v = prompt_curve("smollm2-135m", "raw", tokens)[12:21]
        yield f"{v.min():.2f} to {v.max():.2f} nats in layers 12 to 20 with `{tokens}`"
    hill = prompt_curve("smollm2-135m", *UNIT)
    yield f"from {hill[0]:.2f} at layer 0 to {hill.max():.2f} at layer {hill.idxmax()} and {hill[30]:.2f} at layer 30"
    norm = curves.loc["smollm2-135m"]["mean_norm raw all"]
    yield f"mean norm jumps from {norm[11]:.0f} to {norm[12]:.0f}"
    for metric, name in (("dataset_entropy", "data-set entropy"), ("effective_rank", "effective rank")):
        v = curves.loc["smollm2-135m"][f"{metric} raw all"]
        yield f"{name} from {v[11]:.2f} to {v[12]:.2f}"
    first = [prompt_curve("gemma3-270m", "centered_unit", tokens)[1] for tokens in ("all", "no_first", "no_sinks")]
    yield f"{first[0]:.2f} with all tokens, {first[1]:.2f} without the first, {first[2]:.2f} without sinks"
    same = curves.loc["gemma3-270m"]["anisotropy raw all"][1:]
    yield f"anisotropy is {same.min():.2f} to {same.max():.3f} from layer 1 on"
    dip = prompt_curve("gemma3-270m", "centered_unit", "all")
    yield f"{dip[4]:.2f} at layer 4, {dip[9]:.2f} at layer 9, {dip[12]:.2f} at layer 12"


def claims_about_others():
    curves = scan_curves()
    mini, gte = curves.loc["all-minilm-l6-v2"], curves.loc["gte-small"]
    for table, name in ((gte, "gte-small"), (mini, "MiniLM")):
        off = max(abs(table[f"prompt_entropy {rows} {tokens}"] - table[f"prompt_entropy {rows} all"]).max()
                  for rows in ("raw", "centered_unit") for tokens in ("no_first", "no_sinks"))  # fmt: skip
        yield f"{off:.2f} nats ({name})"
    spread, same = mini["dataset_entropy raw all"], mini["anisotropy raw all"]
    yield f"MiniLM's data-set entropy rises from {spread[5]:.2f} to {spread[6]:.2f} in the last layer"
    yield f"its anisotropy falls from {same[5]:.2f} to {same[6]:.2f}"
    spread = gte["dataset_entropy raw all"]
    yield f"gte-small's is {spread[10]:.2f}, {spread[11]:.2f} and {spread[12]:.2f} in layers 10, 11 and 12"
    yield f"({gte['prompt_entropy raw all'][12]:.2f} nats)"
    falling = [prompt_curve(model, "raw", "all") for model in ("gptneox step 8", "gptneox step 64", "mamba step 524")]
    assert all((v.diff().dropna() < 0).all() for v in falling)
    yield "falls at every layer at steps 8 and 64"
    yield f"Mamba falls at every layer, from {falling[2][0]:.2f} to {falling[2][8]:.2f}"
    v = prompt_curve("gptneox step 629", "raw", "all")
    yield f"at step 629 it falls from {v[0]:.2f} to {v[:7].min():.2f} at layer {v[:7].idxmin()}"
    yield f"rises to {v[7:].max():.2f} at layer {v[7:].idxmax()} and ends at {v[12]:.2f}"
    for rows, name in (("raw", "with raw rows"), ("centered_unit", "with centred unit rows")):
        v = prompt_curve("modernbert step 748", rows, "all")
        yield f"{v.min():.2f} to {v.max():.2f} {name}"
    turns = curves["curvature raw all"].groupby("model")
    assert (turns.first() > turns.last()).all()
    span = turns.max() - turns.min()
    yield f"from {span.min():.2f} radians ({span.idxmin()}) to {span.max():.2f} ({span.idxmax()})"


# ---- studies/stress


def stressed(condition, level, metric="prompt_entropy", rows="raw", tokens="no_first"):
    """One line of the table: a number a layer."""
    table = pd.read_csv(STUDIES / "stress/stress.csv")
    where = {"condition": condition, "level": level, "metric": metric, "rows": rows, "tokens": tokens}
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0][[str(layer) for layer in range(31)]].astype(float).rename(int)


def lines_of_stress():
    shown = [0, 1, 3, 9, 15, 20, 29, 30]
    conditions = {"repeat_one": (0.25, 0.5, 0.75, 1), "repeat_any": (0.5, 1), "random": (0.5, 1)}
    yield line("untouched", "", *numbers(stressed("repeat_one", 0)[shown]))
    for condition, levels in conditions.items():
        name = condition
        for level in levels:
            yield line(name, level, *numbers(stressed(condition, level)[shown]))
            name = ""


def claims_about_stress():
    usual, middle = stressed("repeat_one", 0), list(range(12, 21))
    lost = 100 * (1 - stressed("repeat_one", 0.5) / usual)
    yield (f"the middle layers (12 to 20) lose {lost[middle].mean():.0f} % of their entropy, the embeddings "
           f"{lost[0]:.0f} % and layer 3 {lost[3]:.0f} %")  # fmt: skip
    lost = 100 * (1 - stressed("repeat_any", 1) / usual)
    yield f"the middle layers lose {lost[middle].mean():.0f} % on average ({lost[middle].max():.0f} % at most)"
    yield f"layer 29 loses {lost[29]:.0f} % and layer 30 {lost[30]:.0f} %"
    half, random = stressed("random", 0.5), stressed("random", 1)
    yield (f"Layer 3 rises from {usual[3]:.2f} to {half[3]:.2f} with half of the tokens random "
           f"and to {random[3]:.2f} with all.")  # fmt: skip
    yield f"Layer 1 rises from {usual[1]:.2f} to {half[1]:.2f} with half and is back at {random[1]:.2f} with all"
    moved = max(abs(stressed("random", level) - usual)[middle].max() for level in (0.1, 0.25, 0.5))
    yield f"the middle layers (12 to 20) change by at most {moved:.2f} nats until half of the tokens are random"
    yield f"and fall by {(usual - random)[middle].mean():.2f} nats on average when all are"
    fell = 100 * (1 - random / usual)
    yield f"layer 29 falls by {fell[29]:.0f} %, layer 30 by {fell[30]:.0f} %"
    centred = stressed("random", 1, rows="centered_unit") - stressed("random", 0, rows="centered_unit")
    assert (centred[list(range(30))] > 0).all() and centred[30] < 0
    yield "With centred unit rows all layers but the last rise."
    hidden = [stressed(c, v, tokens="all") for c in ("repeat_one", "repeat_any", "random") for v in (0, 0.5, 1)]
    yield f"at most {max(v[12:21].max() for v in hidden):.2f} nats in layers 12 to 20 whatever the input"
    one = stressed("repeat_one", 1)
    yield f"its raw entropy is at most {one.max():.3f} nats"
    undefined = stressed("repeat_one", 1, rows="centered_unit")
    assert undefined[:10].isna().all() and undefined[10:].notna().all()
    yield "undefined in layers 0 to 9"


def claims_about_random_length():
    lengths = (16, 32, 64, 128, 256, 512, 1024)
    raw = pd.DataFrame({length: stressed("random_length", length) for length in lengths})
    grows = raw.diff(axis=1)[[32, 64, 128, 256]].min(axis=1) > 0
    assert grows[:25].all()
    yield "Raw entropy grows with length up to 256 tokens in layers 0 to 24"
    assert (raw.loc[25:, [128, 256, 512, 1024]].diff(axis=1).iloc[:, 1:] < 0).all(axis=None)
    yield (f"in layers 25 to 30 it falls beyond 128 tokens (layer 29: {raw.loc[29, 128]:.2f} to "
           f"{raw.loc[29, 1024]:.2f} at 1024)")  # fmt: skip
    share = pd.DataFrame(
        {length: stressed("random_length", length, "prompt_entropy_normalized", *UNIT) for length in lengths}
    )
    for layer in (0, 15):
        v = share.loc[layer]
        yield f"{v[128]:.2f} at 128 tokens, {v[512]:.2f} at 512 and {v[1024]:.2f} at 1024 at layer {layer}"


def lines_of_length():
    table = pd.read_csv(STUDIES / "stress/length.csv")
    table = table[(table.metric == "prompt_entropy") & (table.rows == UNIT[0]) & (table.tokens == UNIT[1])]
    for model, name, layers in (("smollm2-135m", "SmolLM2", (0, 15, 29, 30)), ("gemma3-270m", "Gemma3", (0, 1, 9, 18))):
        shown, found = f"{name} (centered_unit, no_first)", table[table.model == model].set_index("level")
        for layer in layers:
            yield line(shown, layer, *numbers(found[str(layer)][[8, 16, 32, 64, 96, 128]]))
            shown = ""


# ---- studies/training

NAMES = {"gpt_neox": "GPT-NeoX", "modernbert": "ModernBERT", "mamba": "Mamba"}


def training_curves(metric, rows):
    curves = pd.read_csv(STUDIES / "training/curves.csv")
    chosen = curves[(curves.metric == metric) & (curves.rows == rows)]
    return {
        family: part.pivot(index="step", columns="layer", values="value") for family, part in chosen.groupby("family")
    }


def lines_of_training():
    made = pd.read_csv(STUDIES / "training/trainings.csv").drop_duplicates("family")
    for family, shown in NAMES.items():
        one = made[made.family == family].iloc[0]
        size = [f"{one.parameters:,}", one.steps, f"{one.tokens:,}", f"{one.validation_loss:.2f}"]
        yield line(shown, *size, f"{one.cpu_seconds:.0f}", f"{100 * one.share_of_scans:.0f} %")
    entropy, rank = (training_curves(metric, "centered") for metric in ("prompt_entropy", "effective_rank"))
    for family, shown in NAMES.items():
        steps = [0, 8, 16, 32, 64, 128, 256] if family != "mamba" else [0, 8, 16, 32, 48, 64]
        for step in steps:
            of_entropy, of_rank = (
                numbers(table[family].loc[step, [0, 1, 3, 6]], d) for table, d in ((entropy, 2), (rank, 1))
            )
            yield line(shown if step == 0 else "", step, *of_entropy, *of_rank)


def claims_about_small_trainings():
    entropy = training_curves("prompt_entropy", "centered")
    for family, shown in NAMES.items():
        span = entropy[family].max() - entropy[family].min()
        most = f"most in layer {span.idxmax()} ({span.max():.2f} nats)"
        yield f"{shown}: {most}, {span[0]:.2f} in layer 0, {span[3]:.2f} in layer 3, {span[6]:.2f} in layer 6"
    for family in ("gpt_neox", "modernbert"):
        v = entropy[family][3]
        assert v.idxmin() == 64
        yield f"{NAMES[family]}, layer 3: {v[0]:.2f} at step 0, {v[64]:.2f} at step 64, {v[256]:.2f} at step 256"
    moved = {
        layer: [abs(entropy[f].loc[256, layer] - entropy[f].loc[128, layer]) for f in ("gpt_neox", "modernbert")]
        for layer in (0, 6)
    }
    early, late = (" and ".join(numbers(moved[layer])) for layer in (0, 6))
    yield f"layer 0 moves by {early} nats in the decoder and the encoder, and that of layer 6 by {late}"
    curvature = training_curves("curvature", "raw")
    low, high = min(t.min().min() for t in curvature.values()), max(t.max().max() for t in curvature.values())
    yield f"from {low:.2f} to {high:.2f} radians over all models"


def lines_of_regulariser():
    table = pd.read_csv(STUDIES / "training/regulariser.csv")
    for row in table.itertuples():
        ranks = numbers([row.effective_rank_2, row.effective_rank_3, row.effective_rank_4], 1)
        scores = [row.best_layer, *numbers([row.best_score, row.last_score, row.untrained_score], 1)]
        yield line(
            row.seed, f"{row.weight:g}", f"{row.validation_loss:.2f}", *ranks, f"{row.prompt_entropy_3:.2f}", *scores
        )


def claims_about_the_regulariser():
    table = pd.read_csv(STUDIES / "training/regulariser.csv").set_index(["weight", "seed"])
    changes = table.loc[1.0] - table.loc[0.0]
    assert sorted(changes.index) == [0, 1, 2]

    def said(name, digits):
        mean, low, high = (f"{f(changes[name]):+.{digits}f}" for f in (pd.Series.mean, pd.Series.min, pd.Series.max))
        return f"{mean} ({low} to {high})"

    yield f"effective rank of layer 3 {said('effective_rank_3', 1)}"
    yield f"prompt entropy of layer 3 {said('prompt_entropy_3', 2)} nats"
    yield f"validation loss {said('validation_loss', 2)}"
    yield f"score of the best layer {said('best_score', 1)} points"
    yield f"score of the last layer {said('last_score', 1)} points"
    assert (table.best_score < table.untrained_score).all() and (changes.validation_loss > 0).all()


def lines_of_cost():
    cost = pd.read_csv(STUDIES / "training/cost.csv")
    for model, ratios in cost.groupby("model").ratio:
        assert abs(ratios.median() - 1) <= 0.3 and len(ratios) == 5
        yield line(model, *numbers([ratios.median(), ratios.min(), ratios.max()]))


# ---- studies/compare


def changes(pair, rows, tokens, metric="prompt_entropy"):
    table = pd.read_csv(STUDIES / "compare/training.csv")
    first, second = pair
    table = table[table.pair == f"gptneox/step{first} to gptneox/step{second}"]
    found = table[(table.rows == rows) & (table.tokens == tokens) & (table.metric == metric)].set_index("layer")
    assert len(found) == 13
    return found


EARLY, LATE = (8, 64), (64, 629)


def lines_of_compare():
    shown = [0, 1, 2, 3, 6, 9, 12]
    for (rows, tokens), name in ((UNIT, "centered_unit, no_first"), (RAW, "raw, all")):
        early, late = changes(EARLY, rows, tokens), changes(LATE, rows, tokens)
        yield line(name, 8, *numbers(early.before[shown]))
        yield line("", 64, *numbers(early.after[shown]))
        yield line("", 629, *numbers(late.after[shown]))
    yield line("CKA", "8 to 64", *numbers(changes(EARLY, *RAW).cka[shown]))
    yield line("", "64 to 629", *numbers(changes(LATE, *RAW).cka[shown]))


def claims_about_training():
    early, late, raw = changes(EARLY, *UNIT), changes(LATE, *UNIT), changes(LATE, *RAW)
    moved = 100 * early.moved[3:]
    yield f"({moved.min():.0f} to {moved.max():.0f} % of a metric's range, most at layer {moved.idxmax()})"
    moved = 100 * late.moved
    yield f"({moved[5:10].min():.0f} to {moved[5:10].max():.0f} %; layer 1 also {moved[1]:.0f} %)"
    yield f"(layer 12: {100 * raw.moved[12]:.0f} %, layer 6: {100 * raw.moved[6]:.0f} %)"
    same = changes(LATE, *RAW, metric="anisotropy")
    yield f"Anisotropy of layer 12 falls from {same.before[12]:.2f} to {same.after[12]:.2f}"
    yield f"(layer 6, centred unit rows: {early.before[6]:.2f} to {early.after[6]:.2f}) and then recovers"
    yield f"({late.after[6]:.2f})"
    risen = raw.after > changes(EARLY, *RAW).before
    assert risen[4:].all() and not risen[:4].any()
    yield "with raw rows it has *risen* in every layer from 4 on"
    widest = max(((pair.ci_high - pair.ci_low) / 2).max() for pair in (early, late, raw, changes(EARLY, *RAW)))
    clear = all(((p.ci_low > 0) | (p.ci_high < 0)).all() for p in (early, late, raw, changes(EARLY, *RAW)))
    assert clear
    yield f"all exclude zero (half-width at most {widest:.2f} nats)"
    cka = changes(EARLY, *RAW).cka, raw.cka
    yield f"(CKA {cka[0][0]:.2f} and {cka[1][0]:.2f})"
    yield f"until step 64 ({cka[0][1]:.2f}) and is very different at step 629 ({cka[1][1]:.2f})"
    turns = [changes(pair, *RAW, metric="curvature") for pair in (EARLY, LATE)]
    clear = [int(((t.ci_low > 0) | (t.ci_high < 0)).sum()) for t in turns]
    assert clear[1] == 13
    yield f"only {clear[0]} of its 13 differences have an interval without zero, between 64 and 629 all do"


# ---- studies/numerics


def lines_of_numerics():
    table = pd.read_csv(STUDIES / "numerics/deviations.csv")
    for model, shown in (("smollm2-135m", "SmolLM2-135M"), ("gemma3-270m", "Gemma3-270M")):
        for rows in ("raw", "centered_unit"):
            named = rows
            for tokens in (37, 128, 256):
                found = table[(table.model == model) & (table.rows == rows) & (table.tokens == tokens)]
                worst = [found[way].iloc[found[way].abs().argmax()] for way in ("float32", "with_cut", "bfloat16_gram")]
                yield line(shown, named, tokens, f"{worst[0]:.4f}", *numbers(worst[1:], 1))
                shown = named = ""
    yield f"largest deviation: {table.float32.abs().max():.4f} %"
    yield f"up to {-table.with_cut.min():.0f} % too small"
    yield f"up to {table.bfloat16_gram.max():.0f} % too large"
    layers = {"smollm2-135m": (2, 3, 6, 11, 12, 15, 18, 21, 24, 27, 28, 29, 30),
              "gemma3-270m": (0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 15, 18)}  # fmt: skip
    for model, shown in layers.items():
        found = table[(table.model == model) & (table.rows == "raw") & (table.tokens == 128)].set_index("layer")
        yield line("float64", *(f"{v:.2f}" if v >= 1 else f"{v:.3f}" for v in found.exact[list(shown)]))
        yield line("small eigenvalues zeroed", *(f"{v:.1f}" for v in found.with_cut[list(shown)]))


# ---- studies/inside


def lines_of_inside():
    table = pd.read_csv(STUDIES / "inside/values.csv", keep_default_na=False)
    names = {"smollm2-135m": "SmolLM2-135M", "gemma3-270m": "Gemma3-270M", "gptneox": "GPT-NeoX 12 x 256"}
    for model, shown in names.items():
        found = table[table.model == model]
        found = found[(found.layer >= 0.4 * found.layer.max()) & (found.layer <= 0.9 * found.layer.max())]
        means = found.groupby(["point", "tokens"])[["prompt_entropy", "prompt_entropy_centered_unit"]].mean()
        for point in dict.fromkeys(found.point):
            cells = [means.loc[(point, tokens), column] for column in means for tokens in ("all", "no_first")]
            yield line(shown, point or "block output", *numbers(cells))
            shown = ""


def claims_about_points():
    table = pd.read_csv(STUDIES / "inside/values.csv", keep_default_na=False)

    def at(model, tokens, point, low, high, column="prompt_entropy"):
        found = table[(table.model == model) & (table.tokens == tokens) & (table.point == point)]
        return found[(found.layer >= low) & (found.layer <= high)][column]

    def one(point, layer, column="prompt_entropy"):
        return at("smollm2-135m", "all", point, layer, layer, column).item()

    yield f"{one('after_attention', 12):.2f} nats after attention and {one('', 12):.2f} at the end of the block"
    yield f"reads a tensor of {one('mlp_input', 12):.2f} nats and writes one of {one('mlp_output', 12):.3f} nats"
    norms = one("mlp_output", 12, "mean_norm"), one("after_attention", 12, "mean_norm")
    yield f"a mean norm of {norms[0]:.0f} where that of the stream is {norms[1]:.0f}"
    yield f"The MLP of block 29 writes {one('mlp_output', 29):.2f} nats"
    assert at("smollm2-135m", "all", "", 12, 28).max() < 0.5
    spans = [at("smollm2-135m", "all", point, 13, 28) for point in
             ("attention_input", "attention_output", "mlp_input", "mlp_output")]  # fmt: skip
    (a, b), (c, d), (e, f), (g, h) = ((span.min(), span.max()) for span in spans)
    yield f"attention reads {a:.1f} to {b:.1f} nats and computes {c:.1f} to {d:.1f}"
    yield f"and the MLP reads {e:.1f} to {f:.1f} and computes {g:.1f} to {h:.1f}"
    without = at("smollm2-135m", "no_first", "", 4, 30)
    yield f"{without.min():.1f} to {without.max():.1f} nats everywhere between layers 4 and 30"
    both = ("all", "no_first")
    assert max(at("gemma3-270m", t, "normed_attention_output", 1, 8).max() for t in both) < 0.5
    assert max(at("gemma3-270m", t, "", 1, 18).max() for t in both) < 1
    centred = pd.concat([at("gemma3-270m", t, "", 7, 17, "prompt_entropy_centered_unit") for t in both])
    yield f"the stream has {centred.min():.1f} to {centred.max():.1f} nats in layers 7 to 17"
    stream = pd.concat([at("gptneox", t, "", 0, 12) for t in both])
    yield f"Its stream has {stream.min():.1f} to {stream.max():.1f} nats at every layer"
    computed = pd.concat([at("gptneox", t, "attention_output", 1, 12) for t in both])
    yield f"What attention computes has {computed.min():.1f} to {computed.max():.1f}"


# ---- studies/recipes, every layer


def claims_about_pooling():
    layers, rows = pd.read_csv(STUDIES / "recipes/layers.csv"), []
    for (_, _, pooling, _), curve in layers.groupby(["model", "template", "pooling", "map"]):
        curve = curve.sort_values("layer").set_index("layer")["mean"]
        depth = curve.index.max() - 1  # the entry behind it is the last layer after the final norm
        late = depth - min(curve.idxmax(), depth) <= 2
        rows.append({"pooling": pooling, "late": late, "gain": curve.max() - curve.iloc[-1]})
    found = pd.DataFrame(rows).groupby("pooling").agg({"late": ["sum", "count"], "gain": "mean"})
    (last_late, last_all, last_gain), (mean_late, mean_all, mean_gain) = found.loc[["last", "mean"]].to_numpy()
    yield f"{last_late:.0f} of {last_all:.0f} combinations of model, input and map"
    yield f"With mean pooling that is so in {mean_late:.0f} of {mean_all:.0f}"
    yield f"{mean_gain:.1f} points on average with mean pooling, and {last_gain:.1f} with the last token"
    echo = pd.read_csv(STUDIES / "recipes/echo.csv").set_index("layer")
    best = echo.groupby(["model", "map"])["mean"].agg(["idxmax", "max"])
    smol, gemma = (best.loc[model].loc[["none", "remove_top:8"]] for model in ("smollm2-135m", "gemma3-270m"))
    assert set(smol["idxmax"]) == {29}
    yield f"{smol['idxmax'].iloc[0]} of 30 for SmolLM2-135M with and without a map"
    yield f"{gemma['idxmax'].iloc[0]} and {gemma['idxmax'].iloc[1]} of 18 for Gemma3-270M"
    prompteol = layers.query("template == 'prompteol' and pooling == 'last' and map == 'remove_top:8'")
    last = prompteol.groupby("model")["mean"].max()
    yield (
        f"{smol['max'].iloc[1]:.1f} and {gemma['max'].iloc[1]:.1f}, where the last token in `prompteol` has "
        f"{last['smollm2-135m']:.1f} and {last['gemma3-270m']:.1f}"
    )


# ---- studies/speech


def claims_about_speech():
    values = pd.read_csv(STUDIES / "speech/values.csv")
    values = values[(values.model == "whisper-tiny.en") & (values.norm == "raw")].set_index(["step", "metric", "layer"])
    few = values.value["few"]
    digit, speaker, new = (few[name] for name in ("label_60_clips", "speaker_60_clips", "label_new_speaker"))
    yield f"whisper-tiny.en with {digit[0]:.1f} % and from its last layer with {digit[4]:.1f} %"
    yield f"the speaker with {speaker.max():.1f} % at layer {speaker.idxmax()} and {speaker[4]:.1f} % at the last"
    yield f"the digit is at {new[0]:.1f} % at layer 0 and {new[4]:.1f} % at the last layer"


CLAIMS = [
    ("scan", lines_of_scan), ("scan", claims_about_decoders), ("scan", claims_about_others),
    ("stress", lines_of_stress), ("stress", claims_about_stress), ("stress", claims_about_random_length),
    ("stress", lines_of_length), ("compare", lines_of_compare), ("compare", claims_about_training),
    ("training", lines_of_training), ("training", claims_about_small_trainings), ("training", lines_of_cost),
    ("training", lines_of_regulariser), ("training", claims_about_the_regulariser),
    ("numerics", lines_of_numerics), ("inside", lines_of_inside), ("inside", claims_about_points),
    ("recipes", claims_about_pooling), ("speech", claims_about_speech),
]  # fmt: skip


@pytest.mark.parametrize(("study", "claims"), CLAIMS)
def test_the_measured_numbers_of_a_study_are_those_of_its_table(study, claims):
    text = page(study)
    missing = [claim for claim in claims() if claim not in text]
    assert not missing, "\n".join(missing)


def test_the_page_of_metrics_says_what_a_sink_moves():
    smol, text = scan_curves().loc["smollm2-135m"], words("docs", "metrics.md")
    digits = {"mean_norm": 0, "prompt_entropy": 2, "dataset_entropy": 2, "effective_rank": 1}
    digits |= {"intrinsic_dimension": 1, "anisotropy": 3, "curvature": 2}
    for metric, shown in digits.items():
        every, rest = (smol[f"{metric} raw {tokens}"] for tokens in ("all", "no_first"))
        assert line(metric, *numbers([every[11], every[12], rest[12]], shown)) in text
    centered = prompt_curve("smollm2-135m", "centered_unit", "all")
    assert f"only weakens it ({centered.min():.2f} nats at layer {centered.idxmin()})" in text
    hill = prompt_curve("smollm2-135m", *UNIT)
    assert f"rises until layer {hill.idxmax()} of 30" in text
    turns = scan_curves()["curvature raw all"].groupby("model")
    span = turns.max() - turns.min()
    assert f"values span {span.min():.2f} to {span.max():.2f} radians" in text


def test_the_gallery_has_the_collapse_of_studies_compare():
    early, late = changes(EARLY, *UNIT), changes(LATE, *UNIT)
    first, middle, last = numbers([early.before[12], early.after[12], late.after[12]])
    shown = f"from {first} nats (step 8) to {middle} (step 64) and rises to {last} "
    assert shown in words("docs", "gallery.md")


# ---- studies/vision


OBJECTIVES = ("autoregressive", "supervised")


def test_the_table_of_every_layer_of_the_image_models_is_that_of_values_csv():
    values = pd.read_csv(STUDIES / "vision/values.csv")
    own = values[~values.model.str.startswith("released") & (values.norm == "raw")]
    assert set(own.model) == {f"{objective}-{seed}" for objective in OBJECTIVES for seed in range(3)}
    shown = ["attention", "linear", "knn", "prompt_entropy_normalized_centered_unit", "dataset_entropy", "curvature"]
    shown += ["infonce", "dime", "lidar"]
    for (objective, layer), rows in own.groupby([own.model.str[:-2], "layer"]):
        seeds = {metric: of_metric.value for metric, of_metric in rows.groupby("metric")}
        halves = {metric: 4.302653 * found.std() / 3**0.5 for metric, found in seeds.items()}  # Student's t, 2 degrees
        cells = [f"{seeds[metric].mean():.3g} ± {halves[metric]:.2g}" for metric in shown]
        assert line(objective, layer, *cells) in page("vision")


def test_what_the_page_says_of_valleys_in_the_models_trained_here_is_in_values_csv():
    values = pd.read_csv(STUDIES / "vision/values.csv")
    own = values[~values.model.str.startswith("released") & (values.norm == "raw")]
    entropy = own[own.metric == "prompt_entropy_normalized_centered_unit"].pivot(
        index="model", columns="layer", values="value"
    )
    least = entropy.idxmin(axis=1)
    rise = pd.Series({model: curve[least[model] :].max() - curve.min() for model, curve in entropy.iterrows()})
    ours = rise.index.str.startswith("autoregressive")
    assert set(least[ours]) == {3} and f"{rise[ours].min():.3f} to {rise[ours].max():.3f}" in page("vision")
    assert sorted(least[~ours]) == [1, 8, 8] and f"rises by {rise[~ours].max():.3f} after layer 1" in page("vision")
    released = values[values.model == "released aim-huge"].set_index("layer").value
    assert f"AIM rises by {released[released.idxmin() :].max() - released.min():.3f}" in page("vision")
    probe = own[own.metric == "attention"].pivot(index="model", columns="layer", values="value")
    assert f"at most {(probe.max(axis=1) - probe[8]).max():.1f} points from its best layer" in page("vision")


def test_what_the_page_says_of_released_image_models_is_in_values_csv():
    values = pd.read_csv(STUDIES / "vision/values.csv")
    released = values[values.model.str.startswith("released")].set_index(["metric", "model", "layer"]).value
    fall = {model: curve.max() - curve.iloc[-1] for model, curve in released["attention"].groupby("model")}
    assert f"{fall.pop('released aim-large'):.1f} points from layer 17" in page("vision")
    assert len(fall) == 6 and f"by at most {max(fall.values()):.1f}" in page("vision")
    entropy = released["prompt_entropy_normalized_centered_unit"]
    assert f"least at layer {entropy['released aim-huge'].idxmin()} of 23" in page("vision")
    assert f"least at layer {entropy['released beit-large'].idxmin()} of 24" in page("vision")


def in_brackets(difference):
    """`+0.5 (-1.9 to +2.9)` as it stands in a sentence: `(+0.5, -1.9 to +2.9)`."""
    mean, interval = difference.split(" (")
    return f"({mean}, {interval}"


SHRUNK = (("all-minilm-l6-v2", 6, 24000), ("gte-small", 12, 24000), ("all-mpnet-base-v2", 12, 12000))


def shrink_by_task():
    """The scores of studies/shrink: one row per task, one column per model."""
    return pd.read_csv(STUDIES / "shrink/scores.csv").pivot(index="task", columns="cell", values="score")


def test_the_study_of_shrink_shows_the_table_of_its_csv_files(capsys):
    tables = runpy.run_path(str(STUDIES / "shrink/table.py"), run_name="__main__")
    overview, rates, rows = capsys.readouterr().out.split("\n\n", 2)
    text = (STUDIES / "shrink/README.md").read_text()
    assert overview in text and rates in text and rows in text and overview.count("\n") == 14, "13 sizes of four models"
    means = pd.read_csv(STUDIES / "shrink/scores.csv").groupby("cell").score.mean()
    names = ("linear-3-measured-24000", "whole-6---0", "raw-3-prefix-0", "distill-3-30min-measured-24000")
    linear, whole, raw, trained = (f"{means[f'all-minilm-l6-v2-{name}']:.1f}" for name in names)
    other = f"{means['paraphrase-minilm-l3-v2-whole-0---0']:.1f}"
    own = page("shrink")
    assert f"scores {trained} on 22 tasks, 99 % of the whole model's {whole}" in own
    assert f"map score {linear}" in own and f"the cut after block 3 scores {raw}." in own
    assert f"scores {other}**" in own
    figures = pd.read_csv(STUDIES / "shrink/models.csv").set_index("cell")
    losses = [figures.query_loss[f"all-minilm-l6-v2-{name}"] for name in (names[3], names[0])]
    assert f"queries lose {losses[0]:.3f} of MRR" in own and f"queries lose {losses[1]:.3f};" in own
    whole_gte, trained_gte = "gte-small-whole-12---0", "gte-small-distill-6-30min-measured-24000"
    whole, trained = means[whole_gte], means[trained_gte]
    share, loss = f"{100 * trained / whole:.1f} %", figures.query_loss[trained_gte]
    assert f"scores {trained:.1f}, {share} of the whole model's {whole:.1f}" in own
    assert f"queries lose {loss:.3f} of MRR in the original's documents (-0.012" in own
    whole, trained = means["all-mpnet-base-v2-whole-12---0"], means["all-mpnet-base-v2-distill-6-30min-measured-12000"]
    assert f"scores {trained:.1f}, {100 * trained / whole:.1f} % of the whole model's {whole:.1f}" in own
    mpnet = figures.loc["all-mpnet-base-v2-distill-6-30min-measured-12000"]
    assert (
        f"trained for {mpnet.steps:.0f} steps, scores {trained:.1f}" in own and f"took {mpnet.seconds / 60:.0f};" in own
    )
    lost = mpnet.whole_mrr - mpnet.document_mrr
    assert f"queries lose {mpnet.query_loss:.3f} of MRR" in own and f"with the original ({lost:.3f})" in own
    linear, loss = means["gte-small-linear-6-measured-24000"], figures.query_loss["gte-small-linear-6-measured-24000"]
    assert f"the same blocks score {linear:.1f}, and their queries lose {loss:.3f}; the cut after block 6 scores" in own
    nine, loss = means["gte-small-linear-9-measured-24000"], figures.query_loss["gte-small-linear-9-measured-24000"]
    cut = means["gte-small-raw-9-prefix-0"]
    assert f"with a linear map score {nine:.1f}, {means[whole_gte] - nine:.1f} less than the whole model" in own
    assert f"their queries lose {loss:.3f}; the cut after block 9 scores {cut:.1f}" in own
    nine, cut = means["all-mpnet-base-v2-linear-9-measured-12000"], means["all-mpnet-base-v2-raw-9-prefix-0"]
    assert f"score {nine:.1f}, as much as the whole model (+{nine - whole:.1f}, -0.7" in own
    assert figures.query_loss["all-mpnet-base-v2-linear-9-measured-12000"] < 0.001
    assert f"lose less than 0.001; the cut after block 9 scores {cut:.1f}" in own
    recovered = []
    for model, depth, texts in SHRUNK:
        size = 5 if depth == 6 else 9
        cut, all_blocks = means[f"{model}-raw-{size}-prefix-0"], means[f"{model}-whole-{depth}---0"]
        recovered.append(100 * (means[f"{model}-linear-{size}-measured-{texts}"] - cut) / (all_blocks - cut))
    shares = "{:.0f} % for five of six blocks of MiniLM, {:.0f} % for nine of twelve of gte-small and {:.0f} % for nine"
    assert shares.format(*recovered) in own
    by_task = shrink_by_task()
    four, three = (f"gte-small-distill-{size}-5min-measured-24000" for size in (4, 3))
    other = by_task["paraphrase-minilm-l3-v2-whole-0---0"]
    as_good, better = (tables["difference"](other - by_task[cell]) for cell in (four, three))
    assert f"as four of gte-small {in_brackets(as_good)} and more than three {in_brackets(better)}." in own
    assert (
        f"four blocks (1 and 9 to 11) score {means['gte-small-linear-4-measured-24000']:.1f} with a linear map" in own
    )
    assert f"after five minutes {in_brackets(tables['difference'](by_task[four] - by_task[whole_gte]))}" in own
    assert f"score {means['gte-small-linear-3-measured-24000']:.1f} and {means[three]:.1f} (-6.8" in own
    assert f"(queries of four blocks lose {figures.query_loss[four]:.3f})" in own
    docs = words("docs/shrink.md")
    lost = pd.DataFrame({"other": other, "four": by_task[four]}).rsub(by_task[whole_gte], axis=0)
    worst, search = lost.loc["Banking77Classification"], lost.loc["WikiQARetrieval"]
    assert (lost.max() == worst).all()
    assert (
        f"(three blocks) loses {lost.other.mean():.1f} points in the mean, {worst.other:.1f} on Banking77 and "
        f"{search.other:.1f} in search; four blocks of gte-small, trained for five minutes, lose "
        f"{lost.four.mean():.1f}, {worst.four:.1f} and {search.four:.1f}."
    ) in docs
    more = by_task[trained_gte] - by_task["all-minilm-l6-v2-whole-6---0"]
    assert f"scores {more.mean():.1f} more than all-MiniLM-L6-v2 (-0.4" in own
    mpnet = "all-mpnet-base-v2"
    for sentence, cell in (
        (
            "Five minutes ({steps:.0f} steps) give {mean:.1f} already {gap}, with a loss of {loss:.3f};",
            "distill-6-5min",
        ),
        ("the linear map alone {mean:.1f} {gap}, with a loss of {loss:.3f}.", "linear-6"),
        ("four blocks (1 to 3 and 12) score {mean:.1f} with a linear map {gap}", "linear-4"),
        (
            "{mean:.1f} after five minutes {gap}, in a third of the time; their queries lose {loss:.3f}.",
            "distill-4-5min",
        ),
        ("the sets that were tried, score {mean:.1f} with a linear map {gap} and", "linear-3"),
        (
            "{mean:.1f} after five minutes {gap} in a quarter of the time, and their queries lose {loss:.3f}.",
            "distill-3-5min",
        ),
    ):
        cell = f"{mpnet}-{cell}-measured-12000"
        gap = in_brackets(tables["difference"](by_task[cell] - by_task[f"{mpnet}-whole-12---0"]))
        shown = {"mean": means[cell], "gap": gap, "loss": figures.query_loss[cell], "steps": figures.steps[cell]}
        assert sentence.format(**shown) in own
    lost = by_task[whole_gte] - by_task[trained_gte]
    commands = ["Banking77Classification", "MassiveIntentClassification", "MassiveScenarioClassification"]
    assert 0.45 < lost[commands].sum() / lost.sum() < 0.55, "half of the loss comes from three tasks"


def test_the_page_of_shrink_shows_three_quarters_and_half_of_each_model_with_the_worst_task():
    tables = runpy.run_path(str(STUDIES / "shrink/table.py"))
    by_task, figures = shrink_by_task(), pd.read_csv(STUDIES / "shrink/models.csv").set_index("cell")
    quarters, halves, lost, gaps, untrained = [], [], [], [], []
    for model, depth, texts in SHRUNK:
        size, whole = 5 if depth == 6 else 9, by_task[f"{model}-whole-{depth}---0"]
        for rows, kept, made, name in (
            (quarters, size, "linear map", f"linear-{size}"),
            (halves, depth // 2, "trained", f"distill-{depth // 2}-30min"),
        ):
            cell = f"{model}-{name}-measured-{texts}"
            gap, figure = by_task[cell] - whole, figures.loc[cell]
            assert len(gap.dropna()) == 22 and gap.idxmin() == "Banking77Classification"
            rows.append(
                line(
                    model, f"{kept} of {depth}, {made}", tables["difference"](gap), f"{gap.min():.1f}",
                    f"{gap['WikiQARetrieval']:.1f}", f"{figure.query_loss:.3f} of {figure.whole_mrr:.3f}",
                    f"{figure.latency:.2f}",
                )
            )  # fmt: skip
        lost.append(figure.query_loss)
        gaps.append(by_task[cell].mean() / whole.mean())
        untrained.append(whole - by_task[f"{model}-linear-{depth // 2}-measured-{texts}"])
    assert "\n".join(quarters + halves) in (STUDIES / "shrink/README.md").read_text(), "\n".join(quarters + halves)
    assert f"{min(lost):.3f} to {max(lost):.3f} of MRR" in page("shrink")
    assert f"{100 * min(gaps):.0f} to {100 * max(gaps):.0f} % of the mean score on 22 tasks" in page("shrink")
    times = [float(row.strip("| ").split(" | ")[-1]) for row in halves]
    assert f"in {min(times):.2f} to {max(times):.2f} of the time" in page("shrink")
    assert all(loss.idxmax() == "Banking77Classification" for loss in untrained)
    mean, worst, search = (
        f"{min(losses):.1f} to {max(losses):.1f}"
        for losses in zip(*((loss.mean(), loss.max(), loss["WikiQARetrieval"]) for loss in untrained), strict=True)
    )
    assert f"half of the blocks lose {mean} points in the mean, {worst} on Banking77, and {search} in search" in page(
        "shrink"
    )


def test_shrink_says_what_training_lost():
    tables = STUDIES / "shrink"
    losses, found = pd.read_csv(tables / "losses.csv"), pd.read_csv(tables / "search.csv")
    lost = losses[losses.small.str.contains("-trained-15min-")].groupby("whole").difference.agg(["mean", "min", "size"])
    gaps = found[found.model.str.contains("-trained-15min-") & (found.case == "new old")].mrr_gap
    assert set(lost["size"]) == {22} and len(lost) == len(gaps) == 4
    means, worst = (f"{-lost[part].max():.1f} to {-lost[part].min():.1f}" for part in ("mean", "min"))
    assert TRAINING_ADDS == (
        f"four models made so lost {means} points in the mean of 22 tasks, {worst} on the worst, "
        f"and at most {-gaps.min():.3f} of MRR in the old index"
    )


def sentences(text):
    return re.split(r"(?<=[a-z)%0-9])\. (?=[A-Z*`\[])", text)


@pytest.mark.parametrize("name", ["studies/shrink/README.md"])
def test_the_mean_of_shrunk_models_comes_with_the_worst_task_and_with_search(name):
    """A mean hides what single tasks lose, so both are in the same sentence."""
    by_task = shrink_by_task()
    halves, quarters = (
        pd.DataFrame({
            model: by_task[f"{model}-whole-{depth}---0"] - by_task[f"{model}-{form(depth)}-measured-{texts}"]
            for model, depth, texts in SHRUNK
        })
        for form in (lambda depth: f"distill-{depth // 2}-30min", lambda depth: f"linear-{5 if depth == 6 else 9}")
    )  # fmt: skip
    assert set(halves.idxmax()) == set(quarters.idxmax()) == {"Banking77Classification"}
    worst, search = (f"{lost.min():.1f} to {lost.max():.1f}" for lost in (halves.max(), halves.loc["WikiQARetrieval"]))
    quoted = [sentence for sentence in sentences(words(name)) if "97 to 99 %" in sentence]
    assert quoted
    for sentence in quoted:
        assert f"{worst} points on the worst task (Banking77) and {search} in search (WikiQA)" in sentence
    if name == "studies/shrink/README.md":
        worst, search = (
            f"{lost.min():.1f} to {lost.max():.1f}" for lost in (quarters.max(), quarters.loc["WikiQARetrieval"])
        )
        assert f"loses {worst} points on Banking77 and {search} in search" in words(name)


def test_the_front_page_says_where_pick_loses():
    scores = pd.read_csv(STUDIES / "recipes/test.csv").pivot(index=["model", "task"], columns="recipe", values="score")
    gains = (scores.all_dimensions - scores["last"]).unstack("model")[["smollm2-135m", "gemma3-270m"]]
    assert set(gains.idxmin()) == {"AGNewsClassification"}
    lost = " and ".join(f"{-loss:.1f}" for loss in gains.min())
    search = gains.loc[["TrecQARetrieval", "GSM8KRetrieval"]].to_numpy()
    better = (gains > 0).sum()
    often = f"on {better.iloc[0]} of the 16 tasks for SmolLM2-135M and on {better.iloc[1]} for Gemma3-270M"
    assert f"beats the last layer {often}" in words("docs/pick.md")
    for name in ("README.md", "docs/pick.md"):
        assert f"loses {lost} points on the worst of the 16 tasks (AG News classification)" in words(name)
        assert f"gains {search.min():.0f} to {search.max():.0f} in the two search tasks" in words(name)


def test_the_questions_page_says_why_one_model_has_several_scores():
    shown = words("docs/questions.md")
    recipes = pd.read_csv(STUDIES / "recipes/test.csv").query("model == 'all-minilm-l6-v2' and recipe == 'last'")
    whole = pd.read_csv(STUDIES / "eval/best_and_last.csv").query("model == 'all-minilm-l6-v2' and type == 'all tasks'")
    static = pd.read_csv(STUDIES / "static/scores.csv").query("model == 'all-minilm-l6-v2' and method == 'whole'")
    shrunk = shrink_by_task()["all-minilm-l6-v2-whole-6---0"]
    by_type = recipes.groupby("type").score.mean()
    assert f"all-MiniLM-L6-v2 has {by_type.mean():.1f} on the same tasks" in words("docs/pick.md")
    assert f"all-MiniLM-L6-v2, with 23 million parameters, scores {by_type.mean():.1f} on these" in words("README.md")
    for score, tasks in (
        (by_type.mean(), len(recipes)),
        (shrunk.mean(), len(shrunk)),
        (whole["last"].item(), whole.tasks.item()),
        (static[~static.development].score.mean(), (~static.development).sum()),
    ):
        assert re.search(rf"\| {score:.1f} \| {tasks} tasks", shown), (score, tasks)
    assert "| all-MiniLM-L6-v2 | 6 of 6 | 71.62 | 71.62 | 71.62 |" in page("paper") and "| 71.6 | 11 tasks" in shown


def test_the_study_of_shrink_says_which_blocks_scored_what():
    scores, own = pd.read_csv(STUDIES / "shrink/scores.csv"), page("shrink")
    means = scores.groupby("cell").score.mean().rename(lambda cell: cell.removeprefix("all-minilm-l6-v2-"))
    chosen = {name: means[f"distill-3-5min-{name}-24000"] for name in ("measured", "prefix", "even", "1_5_6")}
    more = chosen["measured"] - chosen["prefix"]
    assert f"measured to be best score {chosen['measured']:.1f}, and {more:.1f} points more than the first three" in own
    assert f"the usual choice, score {chosen['even']:.1f}; that difference is within chance" in own
    assert chosen["1_5_6"] == chosen["measured"], "the third random set"
    gte = {name: means[f"gte-small-distill-6-5min-{name}-24000"] for name in ("measured", "prefix", "even")}
    shown = {name: f"{mean:.1f}" for name, mean in gte.items()}
    assert f"its blocks score {shown['measured']}, evenly spaced ones {shown['even']} (" in own
    names = ("1_4_5_7_8_12", "2_3_4_5_10_11", "1_2_3_6_9_11")
    random_sets = [f"{means[f'gte-small-distill-6-5min-{name}-24000']:.1f}" for name in names]
    assert "random sets score {} (2.5 less, 1.4 to 3.6), {} and {};".format(*random_sets) in own
    assert f"the first six {shown['prefix']} ({gte['measured'] - gte['prefix']:.1f} less" in own
    five, four, two = (means[f"linear-{size}-measured-24000"] for size in (5, 4, 2))
    assert f"with a linear map score {five:.1f}, as much as" in own and f"four score {four:.1f}, two {two:.1f}" in own
    assert f"training take them to {means['distill-5-5min-measured-24000']:.1f} (+0.6" in own
    four_trained, two_trained = (means[f"distill-{size}-5min-measured-24000"] for size in (4, 2))
    assert f"the four to {four_trained:.1f} (0.65 of the time) and the two to {two_trained:.1f}." in own
    docs = words("docs/shrink.md")
    less = {name: [sets["measured"] - sets[name] for sets in (chosen, gte)] for name in ("prefix", "even")}
    assert (
        "the first blocks scored {:.1f} and {:.1f} points less than these, "
        "evenly spaced ones {:.1f} more and {:.1f} less"
    ).format(*less["prefix"], -less["even"][0], less["even"][1]) in docs
    grown = [f"{means[f'linear-3-measured-{texts}']:.1f}" for texts in (1000, 4000, 24000)]
    assert "1,000 sentences give {}, 4,000 {} and 24,000 {}.".format(*grown) in own
    assert f"after block 5 scores {means['raw-5-prefix-0']:.1f}" in own


def test_the_study_of_shrink_says_what_is_left_of_a_recipe():
    scores, own = pd.read_csv(STUDIES / "shrink/scores.csv"), page("shrink")
    found = scores[scores.model == "smollm2-135m"].pivot(index="task", columns="cell", values="score")
    assert len(found) == 19 and not found.isna().any(axis=None)
    means = found.mean().rename(lambda cell: cell.removeprefix("smollm2-135m-"))
    names = ("whole-0---0", "raw-14-prefix-4000", "linear-14-measured-4000", "distill-14-5min-measured-4000")
    whole, raw, linear, trained = (f"{means[name]:.1f}" for name in names)
    assert f"scores {whole} on 19 tasks" in own and f"score {linear} (-7.9," in own and f"which scores {raw}." in own
    static = pd.read_csv(STUDIES / "static/scores.csv")
    embeddings = static[(static.model == "smollm2-135m") & static.task.isin(found.index)].score.mean()
    assert f"without any block, score {embeddings:.1f} on these tasks" in own
    assert f"within chance of that (+{means[names[3]] - embeddings:.1f}, -2.4" in own
    figures = pd.read_csv(STUDIES / "shrink/models.csv").set_index("cell").loc[f"smollm2-135m-{names[3]}"]
    assert f"only {figures.steps:.0f} steps, take them to {trained} (-5.5, -7.8 to -3.2), 2.4 more" in own
    assert f"queries lose {figures.query_loss:.3f})" in own
    docs = words("docs/shrink.md")
    lost = found[f"smollm2-135m-{names[0]}"] - found[f"smollm2-135m-{names[3]}"]
    assert lost.idxmax() == "WikiQARetrieval"
    assert f"lost {lost.mean():.1f} points in the mean of 19 tasks, and {lost.max():.1f} in search." in docs
    all_means = scores.groupby("cell").score.mean()
    assert f"take them to {all_means['gte-small-distill-9-5min-measured-24000']:.1f} (-0.8," in own


def test_the_study_of_shrink_says_what_texts_of_the_tasks_add():
    by_task = shrink_by_task()
    own = page("shrink")
    study, tables = script(STUDIES / "shrink/study.py"), runpy.run_path(str(STUDIES / "shrink/table.py"))
    assert len(study.WITH_TRAINING_TEXTS) == 7
    kinds = ("AmazonCounterfactual", "Banking77", "Emotion", "Massive", "MRPC", "STSBenchmark", "TweetSentiment")
    same = by_task.index.str.startswith(kinds)
    searched, changed = [], []
    for name, depth, texts in SHRUNK:
        cell = f"{name}-distill-{depth // 2}-5min-measured-{texts}"
        gained = by_task[f"{cell}-tasks"] - by_task[cell]
        assert len(gained) == 22 and same.sum() == 8
        shown = " | ".join(tables["difference"](part) for part in (gained, gained[same], gained[~same]))
        assert f"| {name} | {shown} |" in own
        changed.append(gained[same].mean())
        searched.append(-gained[gained.index.str.contains("QA")].mean())
    assert "lose most, {:.1f}, {:.1f} and {:.1f} points in the mean".format(*searched) in own
    docs = words("docs/shrink.md")
    assert "changed these tasks by {:+.1f}, {:+.1f} and {:+.1f} points".format(*changed) in docs
    assert "but search and reranking by -{:.1f}, -{:.1f} and -{:.1f}.".format(*searched) in docs
    of_mpnet = gained["Banking77Classification"], -gained["EmotionClassification"]
    assert "Banking77 gains {:.1f} points and Emotion loses {:.1f}.".format(*of_mpnet) in own
    bank, cell = by_task.loc["Banking77Classification"], "gte-small-distill-6-5min-measured-24000"
    assert f"({bank[f'{cell}-tasks']:.1f} of {bank['gte-small-whole-12---0']:.1f} for gte-small)" in own


def test_the_study_of_shrink_shows_how_agreement_grows_with_steps():
    text = (STUDIES / "shrink/README.md").read_text()
    history = pd.read_csv(STUDIES / "shrink/history.csv").set_index(["cell", "step"]).agreement
    tables = [re.findall(rf"(?m)^\| {name} \| (.*) \|$", text) for name in ("step", "mean cosine")]
    cells = (
        "all-minilm-l6-v2-distill-3-30min-measured-24000", "gte-small-distill-6-30min-measured-24000",
        "all-mpnet-base-v2-distill-6-30min-measured-12000",
    )  # fmt: skip
    for cell, steps, cosines in zip(cells, *tables, strict=True):
        shown = [f"{history[cell, int(step.replace(',', ''))]:.3f}" for step in steps.split(" | ")]
        assert cosines.split(" | ") == shown and len(shown) == 7
    nine = "all-mpnet-base-v2-distill-9-5min-measured-12000"
    first, last = (f"{history[nine, step]:.3f}" for step in (35, 105))
    assert f"from the map's {last} to {first} after 35 steps and is back at {last} at the end" in page("shrink")
    models = pd.read_csv(STUDIES / "shrink/models.csv").set_index("cell")
    assert models.kept_step[nine] == 0, "the map was kept"
    by_task = shrink_by_task()
    assert (by_task[nine] == by_task["all-mpnet-base-v2-linear-9-measured-12000"]).all()


def test_the_study_of_shrink_says_what_a_lower_learning_rate_gives(capsys):
    tables = runpy.run_path(str(STUDIES / "shrink/table.py"), run_name="__main__")
    _, *rows = (row.strip("| ").split(" | ") for row in capsys.readouterr().out.split("\n\n")[1].splitlines()[1:])
    cosines = [[float(cell) for cell in row[3:7]] for row in rows]
    assert len(rows) == 5 and all(row[1] > row[0] for row in cosines) and sum(row[3] > row[2] for row in cosines) == 3
    bounds = {(row[0], row[1]): [float(cell) for cell in re.findall(r"[-+][.\d]+", row[-1])] for row in rows}
    more = [cell for cell, (_, low, _) in bounds.items() if low > 0]
    less = [cell for cell, (mean, _, high) in bounds.items() if mean < 0 and high <= 0]
    assert more == [("all-mpnet-base-v2", "9")] and less == [("gte-small", "6")]
    by_task = shrink_by_task()
    nine = by_task["all-mpnet-base-v2-distill-9-5min-measured-12000-rate-1e-4"]
    gap = tables["difference"](nine - by_task["all-mpnet-base-v2-whole-12---0"])
    assert f"the difference from the whole model becomes {gap}." in page("shrink")
    assert f"At a learning rate of 1e-4 they score {nine.mean():.1f} (below)." in page("shrink")


def test_the_losses_of_the_stricter_test_are_those_of_their_tables():
    tables = runpy.run_path(str(STUDIES / "shrink/losses_table.py"))
    losses, shown = pd.read_csv(STUDIES / "shrink/losses.csv"), tables["markdown"]()
    for path, left_out in tables["PAGES"].items():
        assert f"{tables['BEGIN']}\n{tables['markdown'](left_out)}\n{tables['END']}" in path.read_text(encoding="utf-8")
    of_model = losses.groupby(["whole", "small"]).task.nunique()
    assert shown.count("\n") == 1 + len(of_model) and (of_model == 22).all()
    assert ((losses.low <= losses.difference) & (losses.difference <= losses.high)).all()
    assert np.allclose(losses.score - losses.whole_score, losses.difference, atol=2e-3)


def test_the_study_of_shrink_answers_with_the_losses_of_its_table():
    table = runpy.run_path(str(STUDIES / "shrink/losses_table.py"))
    losses = pd.read_csv(STUDIES / "shrink/losses.csv")
    losses["way"] = [table["way_of"](whole, small) for whole, small in zip(losses.whole, losses.small, strict=True)]
    lost = -losses.set_index(["way", "whole", "task"]).difference.unstack()
    words = pd.DataFrame({"mean": lost.mean(axis=1), "worst": lost.max(axis=1), "search": lost["WikiQARetrieval"]})

    def shown(way):
        low, high = words.loc[way].min(), words.loc[way].max()
        return [f"{low[name]:.1f} to {high[name]:.1f}".replace("nan", "") for name in words]

    text = page("shrink")
    for way, count, models in (
        ("int8", 2, "two"), ("linear", 5, "five"), ("trained", 4, "four"), ("trained-bfloat16", 2, "two"),
    ):  # fmt: skip
        assert lost.loc[way].shape == (count, 22)
        mean, worst, search = shown(way)
        assert f"{models} models): {mean}, {worst}, and {search}." in text, shown(way)
    for way in ("static", "model2vec", "tokenlearn"):
        mean, worst, search = (f"{words.loc[(way, 'all-minilm-l6-v2'), name]:.1f}" for name in words)
        assert f"{mean}, {worst} and {search}" in text, way


def test_the_vocabularies_are_those_of_their_table():
    table = pd.read_csv(STUDIES / "shrink/vocabulary.csv").query("count == 10000")
    for row in table.itertuples():
        left = f"{row._7:.0f} of {row.megabytes:,.0f} | {100 * row._8:.0f} %"
        cells = f"{row.texts} | {row.kept:,} of {row.vocabulary:,} | {left}"
        assert f"| {cells} |" in page("shrink"), cells


def test_the_ideas_for_training_are_those_of_their_table():
    table = pd.read_csv(STUDIES / "shrink/ideas.csv")
    assert {*table.idea} <= {*script(STUDIES / "shrink/ideas.py").IDEAS}
    tasks = ("Banking77Classification", "MassiveIntentClassification", "SICK-R", "STSBenchmark", "WikiQAReranking")
    for _, row in table.iterrows():
        lost = " | ".join(
            [*(f"{row[f'{task} lost']:.1f}" for task in tasks), *(f"{row[f'{m} lost']:.3f}" for m in ("mrr", "recall"))]
        )
        assert f"| {row.idea} | {row.seconds:g} | {row.steps:,} | {lost} |" in page("shrink"), row.idea


def test_the_benchmark_of_streaming_is_that_of_its_table():
    table, own = (
        pd.read_csv(ROOT / "benchmarks/streaming.csv"),
        (ROOT / "benchmarks/README.md").read_text(encoding="utf-8"),
    )
    for (model, texts, way), rows in table.groupby(["model", "texts", "way"]):
        line = next(line for line in own.splitlines() if line.startswith(f"| {model} | {texts} | {way} |"))
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        assert cells[4] == f"{rows.anonymous_gb.max():.2f}" and cells[6] == ", ".join(map(str, rows.seconds))
        assert cells[5] == ("" if way == "whole" else f"{rows.read_gb.max():.1f}")
        assert rows.limit_gb.isna().all() or rows.anonymous_gb.max() < float(cells[3]) == rows.limit_gb.max()
    for _, same in table.groupby(["model", "texts"]):
        assert same.sum_of_values.nunique() == 1


# ---- studies/classify


def test_the_study_of_classifiers_says_what_its_tables_say():
    tables = script(STUDIES / "classify/table.py")
    text = (STUDIES / "classify/README.md").read_text(encoding="utf-8")
    assert f"{tables.BEGIN}\n{tables.markdown()}\n{tables.END}" in text
    mean, worst, cells = tables.mean_and_worst("all-minilm-l6-v2")
    sentence = f"{mean:.1f} points above the last on average of {cells} cells and {-worst:.1f} below it in the worst"
    assert sentence in page("classify")
    short = f"{mean:.1f} points above the last on average and {-worst:.1f} below it at worst"
    assert short in words("docs", "probes.md")
    tuned, frozen = (tables.cells()["all-minilm-l6-v2", "trec6", 16][name] for name in ("finetuned", "quality"))
    seconds = [json.loads(tuned.settings)["last"], frozen.reading + frozen.fitting]
    assert f"is {tuned.accuracy - frozen.accuracy:.1f} points above it" in words("docs", "probes.md")
    assert f"{seconds[0]:.0f} s of CPU time against {seconds[1]:.1f} s" in page("classify")
    ways = pd.read_csv(STUDIES / "classify/choice.csv").pivot_table(
        index=["data", "shots"], columns=["rule", "method"], values=["layer", "accuracy"]
    )
    rules = ("one fifth, 95 %", "five fifths, one standard error")
    for (data, shots), row in ways.iterrows():
        shown = [
            f"{row['accuracy', rule, method]:.1f} ({row['layer', rule, method]:.0f})"
            for rule in rules
            for method in ("quality", "fast")
        ]
        assert line(data, shots, *shown) in page("classify")
    means = " | ".join(numbers((ways["accuracy", rule, m].mean() for rule in rules for m in ("quality", "fast")), 1))
    assert f"| mean of six | | {means} |" in page("classify")
    served = pd.read_csv(STUDIES / "classify/serving.csv").set_index(["data", "layer"]).loc["trec6", 4]
    assert f"layer 4 of 6 takes {served.ratio:.2f} of the whole model's time on questions" in page("classify")
    assert f"({served.low:.2f} to {served.high:.2f} in seven rounds)" in page("classify")
