"""A data root of real labelled data for `layerwise eval`, from plain Parquet files.

    python studies/eval/prepare.py SHARED_DATA ROOT [--cap 2000] [--cap-all] [--whole TASK ...]

STS, reranking and retrieval are capped only with --cap-all; other test sets always are, by hashed id. Tasks after
--whole keep all test examples. Names are those of mteb where the data are.
"""

import argparse
from pathlib import Path

import pandas as pd

from layerwise.verbs.eval.data_root import write_task

# folder, task, type, mteb's subset
SETS = [
    ("amazon_counterfactual_en", "AmazonCounterfactualClassification", "Classification", "en"),
    ("banking77", "Banking77Classification", "Classification", "default"),
    ("emotion", "EmotionClassification", "Classification", "default"),
    ("massive_intent_en", "MassiveIntentClassification", "Classification", "en"),
    ("massive_scenario_en", "MassiveScenarioClassification", "Classification", "en"),
    ("tweet_sentiment_extraction", "TweetSentimentExtractionClassification", "Classification", "default"),
    ("twitter_url_corpus", "TwitterURLCorpus", "PairClassification", "default"),
    ("mrpc", "MRPC", "PairClassification", "default"),
    ("biosses", "BIOSSES", "STS", "default"),
    ("sick_r", "SICK-R", "STS", "default"),
    ("sts12", "STS12", "STS", "default"),
    ("sts13", "STS13", "STS", "default"),
    ("sts14", "STS14", "STS", "default"),
    ("sts15", "STS15", "STS", "default"),
    ("sts16", "STS16", "STS", "default"),
    ("stsbenchmark", "STSBenchmark", "STS", "default"),
    ("twentynewsgroups_clustering", "TwentyNewsgroupsClustering", "Clustering", "default"),
    ("stackoverflow_clustering", "StackOverflowTitlesClustering", "Clustering", "default"),
    ("biomedical_clustering", "BiomedicalTitlesClustering", "Clustering", "default"),
    ("trecqa_reranking", "TrecQAReranking", "Reranking", "default"),
    ("wikiqa_reranking", "WikiQAReranking", "Reranking", "default"),
    ("wikiqa_reranking", "WikiQARetrieval", "Retrieval", "default"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--cap", type=int, default=2000)
    parser.add_argument("--cap-all", action="store_true", help="STS, reranking and retrieval as well, for a quick look")
    names = [name for _, name, _, _ in SETS]
    parser.add_argument(
        "--whole", nargs="+", default=[], choices=names, metavar="TASK", help="tasks whose test set is not capped"
    )
    args = parser.parse_args()
    for folder, name, kind, subset in SETS:
        test = pd.read_parquet(args.data / folder / "test.parquet")
        train = pd.read_parquet(args.data / folder / "train.parquet") if kind == "Classification" else None
        if kind == "Clustering":  # five sets are enough to average over
            test = test.iloc[:5]
        capped = args.cap_all or kind not in ("STS", "Reranking", "Retrieval")
        cap = args.cap if capped and name not in args.whole else None
        task = write_task(args.root, name, kind, test, train, subset=subset, cap=cap)
        print(f"{task.name:42}{task.type:20}{task.size}")


if __name__ == "__main__":
    main()
