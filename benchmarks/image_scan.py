"""What a scan of images costs: images per second against the bare forward pass, and memory while 10,000 stream by.

    python benchmarks/image_scan.py MODEL IMAGES.parquet [COLUMN]

IMAGES holds images as bytes; they are repeated, mirrored and shifted, until there are 10,000 different ones. Rounds of
400 images alternate between the bare forward pass on prepared pixels, the same with decoding and the image processor,
and a scan of all layers with the metrics that need no views, so that all three see the same load of the machine. CPU
time is that of this process. Then one scan reads all images, while its memory is sampled.
"""

import io
import sys
import threading
import time

import numpy as np
import psutil
import pyarrow.parquet
import torch
from PIL import Image, ImageOps

import layerwise
from layerwise.inputs.modalities import processor_for
from layerwise.models.opening import open_network

TOTAL, ROUND, ROUNDS, BATCH = 10_000, 400, 5, 64


def main() -> None:
    model, path, column = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["image"])[0]
    torch.set_num_threads(1)
    images = enlarge(pyarrow.parquet.read_table(path, columns=[column])[column].to_pylist())
    network = open_network(model)
    compare(network, images)
    measure_memory(network, images)


def enlarge(contents: list[bytes]) -> list[bytes]:
    """10,000 different images: the given ones, then mirrored, then shifted copies."""
    images, copy = list(contents[:TOTAL]), 1
    while len(images) < TOTAL:
        for content in contents[: TOTAL - len(images)]:
            pixels = np.asarray(ImageOps.mirror(Image.open(io.BytesIO(content)).convert("RGB")))
            file = io.BytesIO()
            Image.fromarray(np.roll(pixels, copy - 1, axis=1)).save(file, "JPEG", quality=90)
            images.append(file.getvalue())
        copy += 1
    return images


def compare(network: object, images: list[bytes]) -> None:
    """Images per second of CPU time for each of the three, in alternating rounds."""
    processor = processor_for(network.preprocessor)
    spent: dict[str, list[float]] = {"forward": [], "decode + forward": [], "scan": []}
    for number in range(-1, ROUNDS):  # the first round warms up
        chunk = images[(number + 1) * ROUND : (number + 2) * ROUND]
        source = list(layerwise.images(chunk))
        batches = [source[start : start + BATCH] for start in range(0, ROUND, BATCH)]
        ready = [processor.collate(processor.prepare(batch, network.max_length)) for batch in batches]
        for name in spent:
            begun = time.process_time()
            if name == "scan":
                layerwise.scan(network, chunk, metrics="fast", batch_tokens=BATCH * network.max_length, threads=1)
            else:
                for batch, inputs in zip(batches, ready, strict=True):
                    if name != "forward":
                        inputs = processor.collate(processor.prepare(batch, network.max_length))
                    with torch.inference_mode():
                        network.forward(inputs)
            if number >= 0:
                spent[name].append(time.process_time() - begun)
    for name, seconds in spent.items():
        rates = ROUND / np.array(seconds)
        print(
            f"{name:17} {rates.mean():6.0f} images per CPU second ({rates.min():.0f} to {rates.max():.0f})", flush=True
        )


def measure_memory(network: object, images: list[bytes]) -> None:
    """One scan of all images; its memory at ten moments."""
    process, samples, done = psutil.Process(), [], threading.Event()

    def sample() -> None:
        while not done.wait(0.5):
            samples.append(process.memory_info().rss / 2**20)

    watcher = threading.Thread(target=sample)
    watcher.start()
    begun, cpu = time.monotonic(), time.process_time()
    layerwise.scan(network, images, metrics="fast", shard_size=500, threads=1)
    done.set()
    watcher.join()
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    print(
        f"{len(images):,} images in {seconds:.0f} s ({cpu:.0f} s of CPU time): {len(images) / cpu:.0f} per CPU second"
    )
    tenths = [f"{np.mean(part):.0f}" for part in np.array_split(samples, 10)]
    print("memory in MiB, by tenths of the run:", " ".join(tenths))


if __name__ == "__main__":
    main()
