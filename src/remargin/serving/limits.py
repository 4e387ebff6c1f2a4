"""What a request may ask for. Past these limits it is refused with a reason, so that no request makes others wait."""

from __future__ import annotations

from typing import Final

QUERY_CHARACTERS: Final = 2_000
DOCUMENT_CHARACTERS: Final = 32_768  # of a text to encode
TEXTS: Final = 128  # of one request to encode
LARGEST_K: Final = 100
SHOWN_CHARACTERS: Final = 1_500  # of each document among the results; the whole one is asked for by its id
ID_CHARACTERS: Final = 1_000
BODY_BYTES: Final = 1 << 20
DRAINED_BYTES: Final = 1 << 23  # of a body that is too large: whoever still sends would not read the answer
BODY_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
EXAMPLES: Final = 60
