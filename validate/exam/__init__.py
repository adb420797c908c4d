"""The exam that a checkpoint may bring along: every runner answers it from its own cache, and reads a text.

In: `exam.json` beside the graphs, and `--text FILE` for any model with a tokenizer.
Out: right answers of each skill and the perplexity of the text, for each runner, beside PyTorch's.
"""

from validate.exam.paper import Paper, Question, paper, read_text
from validate.exam.sheet import Sheet, judge_answers, judge_perplexity, sit

__all__ = ["Paper", "Question", "Sheet", "judge_answers", "judge_perplexity", "paper", "read_text", "sit"]
