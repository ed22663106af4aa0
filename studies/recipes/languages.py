"""What pick's probes give the last layer of a model in each language of the bundled sentences.

python studies/recipes/languages.py languages.csv MODEL ...
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import layerwise
from layerwise.models.opening import open_network
from layerwise.verbs.pick.probes import LANGUAGES, proxy_probes
from layerwise.verbs.pick.run import default_rulebook


def main(out: str, *models: str) -> None:
    rows = []
    for model in models:
        network = open_network(model)
        for language in LANGUAGES:
            row = {"model": Path(model).name, "language": language}
            for probe in proxy_probes(language=language):
                if default_rulebook().weights.get(probe.name):
                    vectors = np.stack(layerwise.embed(network, list(probe.texts), layers="last")["last"].tolist())
                    row[probe.name] = round(100 * float(probe.score(vectors.astype(np.float64)).mean()), 1)
            rows.append(row)
            pd.DataFrame(rows).to_csv(out, index=False)
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
