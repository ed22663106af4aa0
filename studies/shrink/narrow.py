"""All blocks with narrower MLPs: is that better than fewer blocks?

    python studies/shrink/narrow.py MODELS SHARED_DATA KEPT MODEL [--share 0.5]

For BERT and its kin. Of each MLP, the units with the largest mean square activation times the norm of their output
weights are kept. The output weights are fitted again, by ridge regression to the output of the whole MLP on what the
narrow model reads, one block after the other; then a linear map to the vectors of the whole model, as `layerwise
shrink` fits it, on the same texts. The folder is KEPT/ways/MODEL/narrow-SHARE; losses.py, search.py and timing score
it.
"""

import argparse
import copy
from pathlib import Path

import torch
from cheaper import SENTENCES
from originals import original
from sentence_transformers import SentenceTransformer
from study import sentences
from torch import Tensor, nn

from layerwise.maps.ridge import fit_ridge
from layerwise.models.modules import linear_module
from layerwise.verbs.shrink.texts import open_given, split_texts

BATCH, CALIBRATION, PENALTY = 32, 3000, 1e-3


@torch.no_grad()
def run(model: SentenceTransformer, texts: list[str]) -> Tensor:
    return torch.from_numpy(model.encode(texts, batch_size=BATCH, show_progress_bar=False))


def recorded(model: SentenceTransformer, texts: list[str], modules: dict[str, nn.Module]) -> dict[str, list[Tensor]]:
    """The outputs of these modules at the tokens of each batch, padding left out."""
    found: dict[str, list[Tensor]] = {name: [] for name in modules}
    real: list[Tensor] = []

    def keep_mask(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, Tensor]) -> None:
        real.append(kwargs["attention_mask"].bool())

    hooks = [model[0].auto_model.register_forward_pre_hook(keep_mask, with_kwargs=True)]
    for name, module in modules.items():
        hooks.append(module.register_forward_hook(lambda _m, _a, out, name=name: found[name].append(out[real[-1]])))
    run(model, texts)
    for hook in hooks:
        hook.remove()
    return found


def narrowed(whole: SentenceTransformer, share: float, texts: list[str]) -> SentenceTransformer:
    """The model with this share of the units of each MLP."""
    model = copy.deepcopy(whole)
    blocks, wholes = model[0].auto_model.encoder.layer, whole[0].auto_model.encoder.layer
    kept = int(share * model[0].auto_model.config.intermediate_size)
    for block, own in zip(blocks, wholes, strict=True):
        target = torch.cat(recorded(whole, texts, {"out": own.output.dense})["out"])
        units = torch.cat(recorded(model, texts, {"units": block.intermediate})["units"])
        weight = block.output.dense.weight
        value = units.square().mean(dim=0).sqrt() * weight.norm(dim=0)
        places = value.topk(kept).indices.sort().values
        chosen = units[:, places].double()
        mean, goal = chosen.mean(dim=0), target.double().mean(dim=0)
        gram = (chosen - mean).mT @ (chosen - mean)
        gram += PENALTY * gram.diagonal().mean() * torch.eye(kept, dtype=torch.double)
        fitted = torch.linalg.solve(gram, (chosen - mean).mT @ (target.double() - goal)).mT
        for old, new in ((block.intermediate, kept), (block.output, kept)):
            first = old is block.intermediate
            dense = nn.Linear(old.dense.in_features if first else new, new if first else old.dense.out_features)
            with torch.no_grad():
                dense.weight.copy_(old.dense.weight[places] if first else fitted.float())
                dense.bias.copy_(old.dense.bias[places] if first else (goal - fitted @ mean).float())
            old.dense = dense
    model[0].auto_model.config.intermediate_size = kept
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("model")
    parser.add_argument("--share", type=float, default=0.5)
    args = parser.parse_args()
    source = original(args.model, args.models, args.kept)
    whole = SentenceTransformer(str(source), device="cpu").eval()
    texts = sentences(args.data / "wikitext2" / "train.parquet", SENTENCES)
    split = split_texts(open_given(texts, None, None, None), ("",), 0)
    small = narrowed(whole, args.share, [item.text for item in split.fit[:CALIBRATION]])
    parts = {name: [item.text for item in getattr(split, name)] for name in ("fit", "held_out")}
    own, target = ({name: run(model, found) for name, found in parts.items()} for model in (small, whole))
    fit = fit_ridge(own["fit"], target["fit"], own["held_out"], target["held_out"])
    print(f"{source.name}, {args.share:g} of the MLPs: {fit.unexplained:.3f} unexplained")
    modules = [*small.children()]
    modules.insert(-1, linear_module(fit.linear.weight, fit.linear.bias, torch.float32))
    SentenceTransformer(modules=modules, device="cpu").save(
        str(args.kept / "ways" / source.name / f"narrow-{args.share:g}"), create_model_card=False
    )


if __name__ == "__main__":
    main()
