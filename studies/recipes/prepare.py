"""The tasks of protocol.json as data roots, from plain Parquet files.

    python studies/recipes/prepare.py SHARED_DATA ROOT

Writes ROOT/development and ROOT/test for `layerwise eval`, and ROOT/labels with 64 labelled examples per task, which
are never among the scored ones: they come from the training or validation split, or from a part of the test split that
is left out of the task. Examples are chosen by hashed id, so the same files are written each time. STS12 to STS16 are
split by the source of their sentences, because SICK-R and STSBenchmark were made from some of the same sources.
"""

import argparse
from pathlib import Path

import pandas as pd

from layerwise.inputs.source import hash_id
from layerwise.verbs.eval.data_root import write_task

CAP = 300  # test examples of a task
LABELS = 64
TRAIN_PER_CLASS = 32
STS_SOURCES = {
    "STSCaptions": ["MSRvid", "images"],
    "STSHeadlines": ["headlines"],
    "STSForums": ["deft-forum", "answers-forums", "belief", "answer-answer"],
    "STSDefinitions": ["OnWN", "surprise.OnWN", "FNWN"],
    "STSStudents": ["answers-students", "plagiarism"],
    "STSTweets": ["tweet-news"],
}
# task: the folder of its data, and its type
DEVELOPMENT = {
    "SICK-R": ("sick_r", "STS"),
    "STSCaptions": ("", "STS"),
    "BIOSSES": ("biosses", "STS"),
    "MRPC": ("mrpc", "PairClassification"),
    "Banking77Classification": ("banking77", "Classification"),
    "EmotionClassification": ("emotion", "Classification"),
    "MassiveScenarioClassification": ("massive_scenario_en", "Classification"),
    "StackOverflowTitlesClustering": ("stackoverflow_clustering", "Clustering"),
    "BiomedicalTitlesClustering": ("biomedical_clustering", "Clustering"),
    "WikiQAReranking": ("wikiqa_reranking", "Reranking"),
    "WikiQARetrieval": ("wikiqa_reranking", "Retrieval"),
    "WikiTextRetrieval": ("wikitext2", "Retrieval"),
}
TEST = {
    "STSHeadlines": ("", "STS"),
    "STSForums": ("", "STS"),
    "STSDefinitions": ("", "STS"),
    "STSStudents": ("", "STS"),
    "STSTweets": ("", "STS"),
    "TwitterURLCorpus": ("twitter_url_corpus", "PairClassification"),
    "AmazonCounterfactualClassification": ("amazon_counterfactual_en", "Classification"),
    "TREC6Classification": ("trec6", "Classification"),
    "AGNewsClassification": ("ag_news", "Classification"),
    "SST2Classification": ("sst2", "Classification"),
    "HateOffensiveClassification": ("hate_offensive_tweets", "Classification"),
    "TwentyNewsgroupsClustering": ("twentynewsgroups_clustering", "Clustering"),
    "AGNewsClustering": ("ag_news", "Clustering"),
    "TrecQAReranking": ("trecqa_reranking", "Reranking"),
    "TrecQARetrieval": ("trecqa_reranking", "Retrieval"),
    "GSM8KRetrieval": ("gsm8k", "Retrieval"),
}
MTEB_SUBSETS = {"AmazonCounterfactualClassification": "en", "MassiveScenarioClassification": "en"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("root", type=Path)
    args = parser.parse_args()
    (args.root / "labels").mkdir(parents=True, exist_ok=True)
    for stage, tasks in (("development", DEVELOPMENT), ("test", TEST)):
        for name, (folder, kind) in tasks.items():
            test, train, labels = tables(args.data, name, folder, kind)
            subset = MTEB_SUBSETS.get(name, "default")
            task = write_task(args.root / stage, name, kind, test, train, subset=subset)
            if labels is not None:
                labels.to_csv(args.root / "labels" / f"{name}.csv", index=False)
            print(f"{stage:13}{task.name:38}{task.type:20}{task.size}")


def tables(
    data: Path, name: str, folder: str, kind: str
) -> tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame | None]:
    """The test table, the training table of a classifier, and 64 labels; None where there are none."""
    if kind == "STS":
        pairs = sts_pairs(data, name) if name in STS_SOURCES else pd.read_parquet(data / folder / "test.parquet")
        pairs = by_hash(pairs.drop_duplicates(["sentence1", "sentence2"]), ["sentence1", "sentence2"])
        labels = LABELS if len(pairs) >= LABELS + CAP else 0  # BIOSSES has too few for both
        return pairs[labels : labels + CAP], None, pairs[:labels] if labels else None
    if kind == "PairClassification":
        pairs = by_hash(pd.read_parquet(data / folder / "test.parquet"), ["sentence1", "sentence2"])
        rest = pairs[:LABELS].rename(columns={"labels": "score"})
        return pairs[LABELS : LABELS + CAP], None, rest
    if kind == "Classification":
        test, train = (pd.read_parquet(data / folder / f"{split}.parquet") for split in ("test", "train"))
        test, train = (by_hash(table.drop_duplicates("text"), ["text"]) for table in (test, train))
        train = train[~train.text.isin(set(test.text[:CAP]))]
        few = train.groupby("label", sort=True).head(TRAIN_PER_CLASS)
        return test[:CAP], few, train[["text", "label"]][:LABELS]
    if kind == "Clustering":
        split = "test" if folder == "ag_news" else "titles"
        rows = by_hash(pd.read_parquet(data / folder / f"{split}.parquet").drop_duplicates("text"), ["text"])
        rows = rows[CAP:] if folder == "ag_news" else rows  # other articles than those that are classified
        sets = [rows[i * CAP : (i + 1) * CAP] for i in range(2)]
        test = pd.DataFrame({"sentences": [list(s.text) for s in sets], "labels": [list(s.label) for s in sets]})
        return test, None, rows[["text", "label"]][2 * CAP : 2 * CAP + LABELS]
    if folder == "gsm8k":
        return questions_and_solutions(data), None, None
    if folder == "wikitext2":
        return sections(data), None, None
    questions = by_hash(pd.read_parquet(data / folder / "test.parquet"), ["query"])
    return questions[: CAP // 2], None, None


def sts_pairs(data: Path, name: str) -> pd.DataFrame:
    years = pd.concat(pd.read_parquet(data / f"sts{year}" / "test.parquet") for year in range(12, 17))
    return years[years.subset.isin(STS_SOURCES[name])]


def questions_and_solutions(data: Path) -> pd.DataFrame:
    """Each question of GSM8K finds its own solution among the solutions of all chosen questions."""
    rows = by_hash(pd.read_parquet(data / "gsm8k" / "test.parquet"), ["question"])[:CAP]
    return with_wrong_answers(list(rows.question), list(rows.answer))


def sections(data: Path) -> pd.DataFrame:
    """The first sentence of a section of WikiText-2 finds the rest of the section, which has 120 words or more."""
    queries, documents, part = [], [], []
    for line in [*pd.read_parquet(data / "wikitext2" / "validation.parquet").text, " = end = "]:
        text = line.strip()
        if not text.startswith("= "):
            part += [text] if text else []
            continue
        first, _, rest = " ".join(part).partition(" . ")
        if len(rest.split()) >= 120:
            queries.append(first + " .")
            documents.append(rest)
        part = []
    chosen = by_hash(pd.DataFrame({"query": queries, "document": documents}), ["query"])[:100]
    return with_wrong_answers(list(chosen["query"]), list(chosen.document))


def with_wrong_answers(queries: list[str], documents: list[str]) -> pd.DataFrame:
    """Retrieval rows; the wrong documents of the first query put all documents into the collection."""
    wrong = [documents[1:], *([documents[0]] for _ in documents[1:])]
    return pd.DataFrame({"query": queries, "positive": [[text] for text in documents], "negative": wrong})


def by_hash(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The rows in the order of a hash of these columns."""
    keys = [hash_id("\n".join(map(str, row))) for row in table[columns].itertuples(index=False)]
    return table.assign(_key=keys).sort_values("_key").drop(columns="_key").reset_index(drop=True)


if __name__ == "__main__":
    main()
