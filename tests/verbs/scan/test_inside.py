"""scan --inside: every metric at every point inside the blocks, as an independent reading finds it."""

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH, make_model, make_tokenizer

import layerwise
from layerwise.core.errors import InputError, ModelError
from layerwise.models.families.configs import block_layout
from layerwise.models.taps import hidden_from_arguments, hidden_from_output
from layerwise.runs.keys import StateKey
from layerwise.runs.table import LayerTable

METRICS = "prompt_entropy,mean_norm,dataset_entropy"
# One family per layout: pre-norm, flattened tokens, norm after the sum, four norms, one mixer, side by side, and one
# block that is called repeatedly.
LAYOUTS = ("llama", "opt", "bert", "gemma3_text", "mamba", "gpt_neox", "albert")


def pair(family):
    return make_model(family), make_tokenizer()


def points_alone(model, tokenizer, text):
    """(layer, point) -> (T, D) of one text, from hooks on submodules alone: no taps, no batch, no padding."""
    layout, seen, handles, calls = block_layout(model.config), {}, [], []
    modules = dict(model.named_modules())
    blocks = next(m for m in modules.values() if isinstance(m, torch.nn.ModuleList) and len(m) in (1, DEPTH))
    if model.config.model_type == "albert":
        blocks = model.encoder.albert_layer_groups

    def keep(point, hidden):
        seen[len(calls), point.name] = hidden.reshape(-1, hidden.shape[-1]).clone()

    for block in blocks:
        handles.append(block.register_forward_pre_hook(lambda *_: calls.append(1)))
        for point in layout.points[:-1]:
            part = block.get_submodule(point.module)
            if point.side == "input":
                hook = lambda _, args, kwargs, p=point: keep(p, hidden_from_arguments(args, kwargs))  # noqa: E731
                handles.append(part.register_forward_pre_hook(hook, with_kwargs=True))
            else:
                handles.append(
                    part.register_forward_hook(lambda _, args, out, p=point: keep(p, hidden_from_output(out)))
                )
    with torch.inference_mode():
        model(**tokenizer(text, return_tensors="pt"))
    for handle in handles:
        handle.remove()
    return seen


def entropy(rows):
    """Of the eigenvalues of the Gram matrix, as shares of their sum."""
    shares = np.linalg.svd(rows.double().numpy(), compute_uv=False) ** 2
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("family", LAYOUTS)
def test_a_row_is_the_metric_of_what_passes_that_point(family, word_texts):
    model, tokenizer = pair(family)
    texts = word_texts[:7]
    table = layerwise.scan((model, tokenizer), texts, metrics=METRICS, inside=True).to_pandas()
    alone = [points_alone(model, tokenizer, text) for text in texts]
    inner = table[table.point != ""]
    assert {(row.layer, row.point) for row in inner.itertuples()} == set(alone[0])
    assert {layer for layer, _ in alone[0]} == set(range(1, DEPTH + 1))
    for (layer, point), part in inner.groupby(["layer", "point"]):
        values = part.set_index("metric").value
        states = [of[layer, point] for of in alone]
        entropies = [entropy(hidden) for hidden in states]
        norms = [float(hidden.norm(dim=-1).mean()) for hidden in states]
        pooled = torch.stack([hidden.mean(dim=0) for hidden in states])
        assert values.prompt_entropy == pytest.approx(np.mean(entropies), rel=1e-4, abs=1e-5), (layer, point)
        assert values.mean_norm == pytest.approx(np.mean(norms), rel=1e-4), (layer, point)
        assert values.dataset_entropy == pytest.approx(entropy(pooled), rel=1e-3, abs=1e-5)


def test_points_do_not_change_the_layers_and_do_not_depend_on_batches_or_shards(word_texts):
    model = pair("opt")
    whole = layerwise.scan(model, word_texts, metrics=METRICS, inside=True)
    plain = layerwise.scan(model, word_texts, metrics=METRICS)
    outputs = whole.where(point="").to_pandas().drop(columns=["settings_hash"])
    pd.testing.assert_frame_equal(outputs, plain.to_pandas().drop(columns=["settings_hash"]), check_exact=True)
    small = layerwise.scan(model, word_texts, metrics=METRICS, inside=True, batch_tokens=16, shard_size=3)
    both = whole.to_pandas().merge(small.to_pandas(), on=["layer", "point", "norm", "metric"])
    assert len(both) == len(whole) == len(small)
    np.testing.assert_allclose(both.value_x, both.value_y, rtol=1e-4)


def test_side_by_side_attention_and_mlp_have_no_point_between_them(word_texts, capfd):
    table = layerwise.scan(pair("gpt_neox"), word_texts[:3], metrics="mean_norm", inside=True, progress=True)
    assert {s.point for s in table} == {"", "attention_input", "attention_output", "mlp_input", "mlp_output"}
    assert "no point between them" in capfd.readouterr().err


def test_an_architecture_without_declared_points_is_refused_by_name(word_texts):
    model, tokenizer = pair("bert")
    model.config.chunk_size_feed_forward = 2  # an MLP in chunks contradicts what is declared for bert
    with pytest.raises(ModelError, match="not declared for bert, or not for its configuration"):
        layerwise.scan((model, tokenizer), word_texts, inside=True)


def test_layer_zero_alone_has_no_block(word_texts):
    with pytest.raises(InputError, match="inside needs a layer above 0"):
        layerwise.scan(pair("llama"), word_texts, layers="0", inside=True)


def test_a_saved_run_resumes_reports_plots_compares_and_pairs(tmp_path, word_texts, tiny_llama):
    folder, other = tmp_path / "run", tmp_path / "other"
    made = layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy", inside=True, out=folder)
    again = layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy", inside=True, out=folder)
    pd.testing.assert_frame_equal(made.to_pandas(), again.to_pandas())
    assert {s.point for s in LayerTable.load(folder)} == {s.point for s in made} != {""}
    layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy", inside=True, seed=1, out=other)
    html = layerwise.report(folder, html=tmp_path / "page.html").read_text()
    assert '"point":"mlp_output"' in html.replace(" ", "") and "Inside the block" in html
    ax = layerwise.plot(folder, figure="inside", metric="prompt_entropy")
    assert len(ax.lines) == len({s.point for s in made})
    assert len(layerwise.plot(folder, metric="prompt_entropy").lines) <= 2  # the layers alone, and a ring
    compared = layerwise.compare([folder, other])
    changes = compared.pairs[0].changes
    assert set(changes.point) == {s.point for s in made} and (changes.difference == 0).all()
    between = layerwise.difference(folder, "prompt_entropy", 1, 2, point="mlp_output")
    rows = {s.layer: s.value for s in made.where(point="mlp_output")}
    assert between.mean == pytest.approx(rows[2] - rows[1], rel=1e-6)
    outputs = layerwise.difference(folder, "prompt_entropy", 1, 2)
    assert outputs.n == between.n == len(word_texts) and outputs.mean != pytest.approx(between.mean)


def test_inner_points_are_not_taken_for_layers(word_texts, tiny_llama):
    """Rules, heat maps and correlations are about layers: points inside the block change none of them."""
    from layerwise.verbs.pick.cases import metric_curves

    plain = layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy,curvature")
    inside = layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy,curvature", inside=True)
    assert metric_curves(inside) == metric_curves(plain)
    drawn = [layerwise.plot(table, figure="heatmap").images[0].get_array() for table in (plain, inside)]
    np.testing.assert_array_equal(*drawn)


def test_the_key_of_a_point_is_read_back():
    for key in (StateKey(3, "raw", "all", "mean", "rows|x"), StateKey(3, "raw", "all", "-", "rows", "mlp_output")):
        assert StateKey.parse(str(key)) == key
    assert str(StateKey(3, "raw", "all", "mean", "rows")) == "003|raw|all|mean|rows"
