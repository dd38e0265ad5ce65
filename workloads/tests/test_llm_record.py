"""Tests of bench/gpu/llm_record.py: what it makes of a server's log."""

import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "bench" / "gpu"
sys.path.insert(0, str(FOLDER))


@unittest.skipUnless(FOLDER.is_dir(), "the bundle for a GPU machine is without it")
class RefusedTest(unittest.TestCase):
    def server(self, refused):
        """Three requests one after the other, each of a prompt in chunks and 12 tokens; before the last one that is too long."""
        requests, steps, now = [], [], 0.0
        for prompt in (600, 3000, 900):
            requests.append({"arrival": now, "prompt_length": prompt, "tokens": 12, "ended": "complete"})
            for tokens in [512] * (prompt // 512) + [prompt % 512]:
                steps.append(["prefill", now, now + 0.02, 1, tokens])
                now += 0.02
            for _ in range(11):
                steps.append(["decode", now, now + 0.01 + prompt / 1e6, 1, 1])
                now += 0.02
        if refused:
            requests.insert(2, {"arrival": requests[2]["arrival"], "prompt_length": 20000, "tokens": 0, "ended": "too long"})
        return {"requests": requests, "steps": steps, "interleave": True}

    def test_who_was_refused_takes_no_steps(self):
        """The steps of those after it were taken for its own: it has a prompt and no tokens."""
        import llm_record

        whole, refused = (llm_record.trace(self.server(refused), "chat") for refused in (False, True))
        self.assertEqual(whole, refused)
        self.assertEqual(len(refused["tenants"][0]["server"]["requests"]), 3)


if __name__ == "__main__":
    unittest.main()
