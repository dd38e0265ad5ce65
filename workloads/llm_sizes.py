"""The sizes of decode steps for which llm_model.py has CUDA graphs. It needs no GPU.

A step is padded up to the next size that has a graph: in its rows, and in the spans of the cache that its rows
have together.
"""

import math

BATCHES = (1, 2, 4, 8, 16, 32, 64)  # rows of a decode step: padded up to the next of these
FEWEST_SPANS = 8
# From one number of spans to the next. A step that has just outgrown a graph takes as much longer as the next one reads more,
# and the tail of all steps must not jump with it: so small, where there is one number of rows.
SPANS_GROWTH = 1.15
# With several numbers of rows each has graphs of its own, and all are captured before the server answers.
SPANS_GROWTH_OF_MANY = 1.5


def batches_up_to(rows):
    """The numbers of rows of decode steps, the last of them at least `rows`."""
    smaller = [batch for batch in BATCHES if batch < rows]
    return [*smaller, BATCHES[len(smaller)] if len(smaller) < len(BATCHES) else rows]


def span_counts(most, growth):
    """The numbers of spans for which there are graphs, up to `most`."""
    counts = [min(FEWEST_SPANS, most)]
    while counts[-1] < most:
        counts.append(min(most, math.ceil(counts[-1] * growth)))
    return counts


def padded(spans, counts):
    return next(count for count in counts if count >= spans)


def graph_sizes(batches, spans_of_row, counts):
    """All pairs of rows and spans that a decode step can have, each once; a row has at most `spans_of_row`."""
    for batch in batches:
        largest = padded(min(batch * spans_of_row, counts[-1]), counts)
        yield from ((batch, spans) for spans in counts if batch <= spans <= largest or spans == largest)
