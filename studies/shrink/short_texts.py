"""Short texts to train on that need no data, beside the requests that shrink makes: of random words, and statements."""

import random
from collections.abc import Iterator, Sequence

from layerwise.verbs.shrink.texts import PART_WORDS

# What is said of the world, of a thing, or above an article.
STATEMENTS = """
a {} is {} a {} | the {} is {} the {} with a {} | two {} are {} in the {} | a {} and a {} are {} |
there is no {} in the {} | there is a {} {} on the {} | a {} is not {} the {} | nobody is {} the {} |
the {} {} is {} by a {} | some {} are {} near a {} | a {} {} is {} on the {} | one {} is {} and another is {} |
the {} was {} in {} | {} is a {} of {} | {} is the {} that {} | {} are {} than {} | most {} have {} and {} |
{} was born in {} and became a {} | the {} of {} began in {} | {} says {} will {} the {} | {} {} after {} in {} |
new {} for {} | {}: a {} of {} | the best {} in {} | {} and {} for {} | a {} for {} with {} |
this {} is very {} | i like the {} but not the {} | it is {} and {} | the {} broke after one {} |
thank you for the {} | we went to the {} to {} | he {} the {} while she {} the {} | if the {} is {} then {} it |
because of the {} the {} was {} | according to {} the {} is {} | {} causes {} in {} | effect of {} on {} |
an {} of {} using {} | {} library for {} | {} tool to {} and {} {}
"""


def word_texts(vocabulary: Sequence[str], count: int, generator: random.Random) -> Iterator[str]:
    """Texts of random words."""
    for _ in range(count):
        yield " ".join(generator.choices(vocabulary, k=generator.randint(*PART_WORDS)))
