"""What one pass for all layers saves against one pass a layer: same texts, interleaved, repeated; medians of the ratio.

    python benchmarks/eval_cost.py MODEL [--texts 200] [--repeats 3]

Layer by layer means what a careful user would do: a model cut at that layer, so that nothing above it runs.
"""

import argparse
import statistics
import time

import layerwise
from layerwise.core.recipe import Readout
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.vectors import pooled_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    network = load_network(ModelSpec(args.model))
    examples = list(layerwise.texts("demo", limit=args.texts))
    readouts = [Readout(layer) for layer in range(network.depth + 1)]
    together, apart = [], []
    for repeat in range(args.repeats + 1):
        start = time.perf_counter()
        pooled_vectors(network, examples, readouts, max_length=256)
        middle = time.perf_counter()
        for readout in readouts:  # the pass stops after the layer asked for, as a cut model does
            pooled_vectors(network, examples, [readout], max_length=256)
        if repeat:
            together.append(middle - start)
            apart.append(time.perf_counter() - middle)
    ratios = sorted(a / t for a, t in zip(apart, together, strict=True))
    one, many, ratio = map(statistics.median, (together, apart, ratios))
    print(f"{network.name.rpartition('/')[2]}: {network.depth + 1} layers, {len(examples)} texts")
    print(f"one pass {one:.2f} s, layer by layer {many:.2f} s, ratio {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"what this depth allows: about {(network.depth + 1) / 2:.1f}")


if __name__ == "__main__":
    main()
