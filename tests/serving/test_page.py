"""The page in a real browser: searching, columns, votes, keys, a phone, hostile texts; and never a complaint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Make, live

pytestmark = pytest.mark.browser
TOKEN = "a-token-of-many-characters"


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    return tmp_path / "votes.jsonl"


@pytest.fixture
def address(make_service: Make, votes: Path) -> Iterator[str]:
    with live(make_service(collect=votes), hosts={"127.0.0.1"}) as address:
        yield address


@contextmanager
def opened(browser: Any, address: str, allowed: tuple[str, ...] = (), **options: Any) -> Iterator[Any]:
    """The page; at its end, nothing has complained and nothing was asked of others."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(address, wait_until="networkidle")
    yield page
    context.close()
    assert [text for text in complaints if not any(part in text for part in allowed)] == []
    assert all(url.startswith((address, "data:")) for url in requests)


def search(page: Any, query: str) -> None:
    page.locator("#query").fill(query)
    page.locator("#status", has_text="Answered in").wait_for()


def ids(page: Any, system: str) -> list[str]:
    return page.locator(f"#column-{system} .card:visible .id").all_inner_texts()  # type: ignore[no-any-return]


def test_columns_show_what_every_system_finds_as_one_types(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        assert page.locator("h2:visible").all_inner_texts() == ["BM25", "Before training", "After training", "Hybrid"]
        assert "41 documents" in page.locator("#about").inner_text()
        search(page, "how do margins 9")
        first = {system: ids(page, system) for system in ("bm25", "before", "after", "hybrid")}
        assert first["bm25"][0] == first["hybrid"][0] == "d9"
        assert len(first["after"]) == 10
        assert "1 document is relevant" in page.locator("#status").inner_text()
        assert page.locator("#column-bm25 .first").inner_text() == "first relevant: 1"
        relevant = page.locator("#column-bm25 .card", has=page.locator(".relevant:visible"))
        assert relevant.locator(".id").all_inner_texts() == ["d9"]
        assert "margins" in page.locator("#column-bm25 mark").all_inner_texts()
        assert page.locator("#column-hybrid .milliseconds").inner_text().endswith(" ms")
        moves = page.locator("#column-before .card:visible .move").all_inner_texts()
        for id, move, rank in zip(first["before"], moves, range(1, 11), strict=True):
            left = first["bm25"].index(id) + 1 if id in first["bm25"] else None
            gain = None if left is None else left - rank
            sign = "new" if gain is None else f"▲ {gain}" if gain > 0 else f"▼ {-gain}" if gain < 0 else "="
            assert move == sign
        page.locator("#query").press_sequentially(" list list text", delay=20)
        page.locator("#column-bm25 .id", has_text="d1").first.wait_for()
        assert ids(page, "bm25") != first["bm25"]
        page.locator("#column-after .more").click()
        assert len(ids(page, "after")) == 20
        assert "#q=how+do+margins+9+list" in page.url
        page.reload()
        page.locator("#status", has_text="Answered in").wait_for()
        assert page.locator("#query").input_value() == "how do margins 9 list list text"


def test_examples_votes_and_keys(browser: Any, address: str, votes: Path) -> None:
    with opened(browser, address) as page:
        example = page.locator("#examples li button").first
        text = example.inner_text()
        example.click()
        page.locator("#status", has_text="Answered in").wait_for()
        assert page.locator("#query").input_value() == text
        press = page.keyboard.press
        press("ArrowDown")
        focused = page.locator(".card:focus")
        assert focused.locator(".rank").inner_text() == "1"
        press("l")
        assert page.locator("#column-before .card:focus").count() == 1
        press("j")
        press("ArrowDown")
        press("k")
        rank = int(focused.locator(".rank").inner_text())
        voted = focused.locator(".id").inner_text()
        press("u")
        page.locator("#status", has_text="Voted: relevant.").wait_for()
        for card in page.locator(".card").filter(has=page.locator(".id").get_by_text(voted, exact=True)).all():
            assert card.locator(".good").get_attribute("aria-pressed") == "true"
        row = json.loads(votes.read_text())
        assert (row["query"], row["document_id"], row["system"]) == (text, voted, "before")
        press("d")
        page.locator("#status", has_text="Voted: not relevant.").wait_for()
        assert votes.read_text() == ""
        press("d")
        page.locator("#status", has_text="taken back").wait_for()
        focused.locator(".good").click()
        page.locator("#status", has_text="Voted: relevant.").wait_for()
        page.reload()
        page.locator("#status", has_text="Answered in").wait_for()
        assert page.locator(f"#column-before .card:nth-child({rank}) .good[aria-pressed=true]").count() == 1
        press("?")
        assert page.locator("#help").is_visible()
        press("Escape")
        page.locator("#help").wait_for(state="hidden")
        page.locator(".card").first.focus()
        press("/")
        assert page.locator("#query:focus").count() == 1


def test_hostile_texts_are_shown_as_they_are(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        search(page, "<script>alert(3)</script> alert value")
        card = page.locator("#column-bm25 .card", has_text="onerror").first
        assert "<img src=x onerror=alert(2)>" in card.inner_text()
        assert page.locator("#results img, #results script").count() == 0
        card.focus()
        page.keyboard.press("Enter")
        card.locator(".expand", has_text="Show less").wait_for()
        assert len(card.locator(".text").inner_text()) > 14_000  # all of it, though the search gave its beginning
        assert card.bounding_box()["height"] < 900
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
        page.keyboard.press("Enter")
        card.locator(".expand", has_text="Show all").wait_for()


def test_a_phone_shows_one_system_at_a_time(browser: Any, address: str) -> None:
    with opened(browser, address, color_scheme="dark") as page:
        page.set_viewport_size({"width": 360, "height": 740})
        search(page, "the list of text")
        tabs = page.locator("#tabs button")
        assert tabs.all_inner_texts() == ["BM25", "Before", "After", "Hybrid"]
        assert page.locator(".column:visible").get_attribute("id") == "column-hybrid"
        tabs.nth(0).click()
        assert page.locator(".column:visible").get_attribute("id") == "column-bm25"
        tabs.nth(0).press("ArrowRight")
        assert page.locator(".column:visible").get_attribute("id") == "column-before"
        page.evaluate(
            "() => document.querySelectorAll('.id').forEach((id) => (id.textContent = 'a/long/path/'.repeat(9)))"
        )
        ranks = page.locator("#column-before .card:visible .rank").evaluate_all(LINES)
        assert len(ranks) == 10
        assert len(set(ranks)) == 1
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_is_readable(browser: Any, address: str, scheme: str) -> None:
    with opened(browser, address, color_scheme=scheme) as page:
        search(page, "how do margins 9")
        back = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (sum(channels(back)) > 3 * 128) == (scheme == "light")
        for selector in SMALL.split():
            colours = page.locator(selector).first.evaluate(COLOURS)
            assert contrast(*colours) >= 4.5, selector


SMALL = (
    "#about #status h2 .description .milliseconds .first .id .score .text .move.new .expand .relevant:not([hidden]) "
    "mark #legend li>button"
)
LINES = "all => all.map((e) => e.getBoundingClientRect().height)"
COLOURS = """element => {
    const clear = (e) => getComputedStyle(e).backgroundColor === "rgba(0, 0, 0, 0)";
    let behind = element;
    while (behind && clear(behind)) behind = behind.parentElement;
    return [getComputedStyle(element).color, getComputedStyle(behind || document.body).backgroundColor];
}"""


def test_a_token_is_asked_for(browser: Any, make_service: Make) -> None:
    with (
        live(make_service(), token=TOKEN) as address,
        opened(browser, address, allowed=("401",)) as page,
    ):
        page.locator("#token-value").fill("wrong" * 5)
        page.keyboard.press("Enter")
        page.locator("#token-value").fill(TOKEN)
        page.keyboard.press("Enter")
        page.locator("#token").wait_for(state="hidden")
        search(page, "the list")
        assert page.locator(".votes:visible").count() == 0  # they are not collected


def channels(colour: str) -> list[float]:
    return [float(channel) for channel in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def contrast(a: str, b: str) -> float:
    """The contrast ratio of the accessibility guidelines (WCAG 2)."""
    luminances = []
    for colour in (a, b):
        shares = [channel / 255 for channel in channels(colour)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)
