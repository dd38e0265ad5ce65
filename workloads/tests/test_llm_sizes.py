"""Tests of llm_sizes.py."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from llm_sizes import SPANS_GROWTH, SPANS_GROWTH_OF_MANY, batches_up_to, graph_sizes, padded, span_counts

# Of the servers that are measured: 32 rows, contexts of 64 spans, and a cache of 256 with a last one of each row.
ROWS, SPANS_OF_ROW, MOST = 32, 64, 288


class SizesTest(unittest.TestCase):
    def test_every_size_has_one_graph(self):
        for rows, spans_of_row, most in ((ROWS, SPANS_OF_ROW, MOST), (64, 64, 320), (6, 4, 24), (32, 64, 20)):
            for batches, growth in (([rows], SPANS_GROWTH), (batches_up_to(rows), SPANS_GROWTH_OF_MANY)):
                counts = span_counts(most, growth)
                sizes = list(graph_sizes(batches, spans_of_row, counts))
                self.assertEqual(len(sizes), len(set(sizes)), sizes)
                for batch in batches:
                    for spans in range(batch, min(batch * spans_of_row, most) + 1):
                        self.assertIn((batch, padded(spans, counts)), sizes)

    def test_a_step_of_the_measured_servers_never_reads_much_more_than_it_needs(self):
        counts = span_counts(MOST, SPANS_GROWTH)
        self.assertEqual(len(list(graph_sizes([ROWS], SPANS_OF_ROW, counts))), 17)
        for spans in range(ROWS, MOST + 1):
            # The next size, and the rounding up to a whole number.
            self.assertLess(padded(spans, counts), spans * SPANS_GROWTH + 1)

    def test_the_last_batch_holds_all_rows(self):
        self.assertEqual(batches_up_to(6), [1, 2, 4, 8])
        self.assertEqual(batches_up_to(100)[-1], 100)


if __name__ == "__main__":
    unittest.main()
