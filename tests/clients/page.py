#!/usr/bin/env python3
"""Opens pages of `gpushim html` in a real browser and uses them, as a person would.

    tests/clients/page.py --target DIR --dist DIR --maker FILE [--shots DIR] [--large EVENTS]

The browser is one of this machine, or Playwright's own Chromium if it can be downloaded. No network is
needed by what is tested, and asking for one is a failure. Exit code: 0 all well, 1 something is wrong,
3 there is no browser here (said on the last line).
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from run import environment

SIZE_LIMIT = 20 << 20

HOSTILE = 'script><img src=x onerror=alert(1)>.trace'
"""In a folder named `<`, so that the path has a whole closing tag."""


def browser_of(playwright, python):
    """A Chromium that runs here: one of this machine, else Playwright's own; or the reason why there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    problem = "no chromium or google-chrome is installed, and Playwright's cannot be downloaded"
    for where in [*filter(None, map(shutil.which, names)), None]:
        if where is None:
            argv = [python, "-m", "playwright", "install", "chromium"]
            try:
                subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
            except subprocess.SubprocessError:
                break
        try:
            # Without the sandbox, as containers that run as root need; it opens nothing but our own files.
            return playwright.chromium.launch(executable_path=where, args=["--no-sandbox"]), ""
        except Exception as failure:
            problem = f"{where or 'Chromium of Playwright'} does not start: {str(failure).strip().splitlines()[0][:200]}"
    return None, problem


def bytes_as_people_read(count):
    """As src/output/units.rs has it."""
    value, units = count / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.95 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if count < 1024 else f"{value:.1f} {units[0]}"


class Failure(Exception):
    """What was seen instead of what should be."""


def expect(holds, what):
    if not holds:
        raise Failure(what)


class Tester:
    """One browser and what was made for it."""

    def __init__(self, options, browser):
        self.options, self.browser = options, browser
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="page-"))

    def gpushim(self, *args):
        """The command's output."""
        done = subprocess.run([self.options.dist / "gpushim", *map(str, args)], capture_output=True, text=True, timeout=300)
        expect(done.returncode == 0, f"gpushim {args[0]} exits {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def trace(self, name, *numbers):
        path = self.work / name
        path.parent.mkdir(exist_ok=True)
        subprocess.run([self.options.maker, path, *map(str, numbers)], check=True, stdout=subprocess.DEVNULL, timeout=300)
        return path

    def html(self, name, *traces):
        path = self.work / name
        self.gpushim("html", *traces, "-o", path)
        return path

    def open(self, path, scheme="light", size=(1440, 900)):
        """A page that is ready. What the console says and what is asked for goes into page.complaints."""
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.url != "about:blank" and page.complaints.append(f"request: {request.url[:100]}"))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        return page

    def close(self, page, name):
        page.wait_for_timeout(100)
        if self.options.shots:
            self.options.shots.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self.options.shots / f"{name}.png")
        expect(not page.complaints, "; ".join(page.complaints[:5]))
        page.context.close()

    # Each is one line of the result.

    def figures(self):
        """What the page says is what the report says."""
        report = json.loads(self.gpushim("report", "--format", "json", self.small))["results"][0]["summary"]
        device = report["devices"][0]
        page = self.open(self.page)
        figure = lambda key: page.inner_text(f'[data-key="{key}"] dd')
        for key, count in [
            ("tensor-peak", device["tensors"]["tensors"]["peak"]),
            ("device-peak", device["requested"]["peak"]),
            ("reserved", device["reserved"]["peak"]),
            ("framework-reserved", device["tensors"]["reserved_peak"]),
            ("end", device["tensors"]["tensors"]["end"]),
        ]:
            expect(figure(key).startswith(bytes_as_people_read(count)), f"{key}: {figure(key)!r}, not {bytes_as_people_read(count)}")
        peak = bytes_as_people_read(device["tensors"]["tensors"]["peak"])
        expect(page.inner_text("#scope").startswith(peak), f"flame graph at the peak: {page.inner_text('#scope')}")
        expect(page.inner_text("#flame button.root") == f"all · {peak}", page.inner_text("#flame button.root"))
        page.click('#modes [data-value="allocated"]')
        page.wait_for_timeout(100)
        classes = {one["class"]: one for one in report["classes"]}
        whole = f"{bytes_as_people_read(classes['tensor']['bytes'])} in {classes['tensor']['allocations']:,} blocks"
        expect(page.inner_text("#scope").startswith(whole), f"{page.inner_text('#scope')}, not {whole}")
        page.click('#tabs [data-value="phases"]')
        page.wait_for_timeout(100)
        expect(page.locator("#table tbody tr").count() == 40, f"{page.locator('#table tbody tr').count()} iterations, not 40")
        page.click('#tabs [data-value="events"]')
        page.wait_for_timeout(100)
        expect("asked for 48.0 GiB" in page.inner_text("#table"), page.inner_text("#table"))
        page.click('#tabs [data-value="memory"]')
        page.wait_for_timeout(100)
        tables = json.loads(self.gpushim("report", "--format", "json", self.small))["results"][0]["memory"]
        expect(page.locator("#table tbody tr").count() > len(tables[0]["at_peak"]["rows"]), page.inner_text("#table"))
        expect(bytes_as_people_read(tables[0]["at_peak"]["used"]) in page.inner_text("#table"), page.inner_text("#table"))
        self.close(page, "figures")

    def findings(self):
        """What stands out in the report stands at the top of the page, with the place and the command that shows more."""
        report = json.loads(self.gpushim("report", "--format", "json", self.small))["results"][0]
        page = self.open(self.page)
        text = page.inner_text("#findings")
        expect(report["findings"], "the report has none: nothing was compared")
        for finding in report["findings"][:3]:
            for part in (finding["text"], finding["why"], finding["next"], finding["fix"] or ""):
                expect(part in text, f"{part!r} is not in {text!r}")
        for question in report["untold"]:
            expect(question["what"] in text, f"{question['what']!r} is not in {text!r}")
        expect(page.locator("#findings li").count() == min(len(report["findings"]), 4), text)
        self.close(page, "findings")

    def window(self, page):
        page.wait_for_timeout(80)
        return re.search(r"from (.*) to (.*?):", page.get_attribute("#timeline", "aria-label")).groups()

    def pointer(self):
        """Wheel, drag, clicks; everything follows."""
        page = self.open(self.page)
        whole, box = self.window(page), page.locator("#timeline").bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.move(*middle)
        for _ in range(4):
            page.mouse.wheel(0, -120)
        expect(self.window(page) != whole, "the wheel does not zoom")
        page.mouse.dblclick(*middle)
        expect(self.window(page) == whole, f"a double click shows {self.window(page)}, not {whole}")
        # Its two clicks have selected a moment.
        expect("moment" in page.inner_text("#status"), page.inner_text("#status"))
        page.keyboard.press("Escape")
        page.wait_for_timeout(150)
        before = page.inner_text("#scope"), page.inner_text("#table")
        page.mouse.move(box["x"] + 400, middle[1])
        page.mouse.down()
        page.mouse.move(box["x"] + 500, middle[1], steps=5)
        page.mouse.up()
        page.wait_for_timeout(150)
        expect("selected" in page.inner_text("#status"), page.inner_text("#status"))
        expect("between" in page.inner_text("#scope") and page.inner_text("#scope") != before[0], "the flame graph does not follow the span")
        expect(page.inner_text("#table") != before[1], "the table does not follow the span")
        page.click('#status button')
        page.wait_for_timeout(150)
        expect((page.inner_text("#scope"), page.inner_text("#table")) == before, "Clear does not bring back what was")
        picture = lambda: page.evaluate("document.getElementById('blocks').toDataURL()")
        plain = picture()
        page.locator("#flame button", has_text="Attention.forward").first.click()
        page.wait_for_timeout(150)
        expect("Attention.forward" in page.inner_text("#status"), page.inner_text("#status"))
        expect(picture() != plain, "the blocks of a frame are not highlighted")
        expect(page.locator("#flame button.lit").count() >= 1, "no frame is lit")
        page.keyboard.press("Escape")
        page.wait_for_timeout(150)
        expect(picture() == plain, "Escape does not end the highlight")
        page.click("#legend button >> nth=0")
        page.wait_for_timeout(150)
        expect(page.get_attribute("#legend button >> nth=0", "aria-pressed") == "true", "the legend's button is not pressed")
        page.keyboard.press("Escape")
        box = page.locator("#phases").bounding_box()
        page.mouse.click(box["x"] + 500, box["y"] + 8)
        page.wait_for_timeout(150)
        expect("selected" in page.inner_text("#status"), "a click on a range does not select it")
        self.close(page, "pointer")

    def keys(self):
        """Everything without a pointer: what has the focus, in which order, and what keys do."""
        page = self.open(self.page, scheme="dark")
        seen = []
        for _ in range(30):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("(e => (e.id || e.closest('[id]')?.id || e.tagName))(document.activeElement)"))
        order = [name for index, name in enumerate(seen) if name not in seen[:index]]
        wanted = ["view", "theme", "help", "charts", "legend", "modes", "frames", "flame", "tabs", "grouping", "table"]
        expect([name for name in order if name in wanted] == wanted, f"focus goes {order}")
        nameless = page.evaluate("""[...document.querySelectorAll('button, select, [tabindex]')].filter((e) => e.checkVisibility()
            && !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))""")
        expect(not nameless, f"without a name: {nameless}")
        page.focus("#charts")
        outline = page.evaluate("(page => { page.focus({ focusVisible: true }); return getComputedStyle(page).outlineStyle; })(document.getElementById('charts'))")
        expect(outline == "solid", f"the focus is not visible: outline {outline}")
        whole = self.window(page)
        page.keyboard.press("+")
        page.keyboard.press("+")
        near = self.window(page)
        page.keyboard.press("ArrowRight")
        right = self.window(page)
        expect(len({whole, near, right}) == 3, f"+ and the arrow: {whole}, {near}, {right}")
        page.keyboard.press("-")
        page.keyboard.press("0")
        expect(self.window(page) == whole, "0 does not show all")
        page.keyboard.press("]")
        page.keyboard.press("]")
        page.wait_for_timeout(100)
        expect("selected" in page.inner_text("#status"), "] selects no iteration")
        page.keyboard.press("z")
        expect(self.window(page) != whole, "z does not zoom to the selection")
        page.keyboard.press("Escape")
        page.focus("#flame button[tabindex='0']")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        name = page.evaluate("document.activeElement.getAttribute('aria-label')")
        expect(name.startswith("main,"), f"two down in the flame graph is {name}")
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        expect("main" in page.inner_text("#status"), "Enter does not highlight a frame")
        page.focus('#tabs [aria-selected="true"]')
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(200)
        expect(page.get_attribute('#tabs [data-value="phases"]', "aria-selected") == "true", "the arrow does not move between tables")
        page.focus("#table tbody tr >> nth=3")
        page.keyboard.press("Enter")
        page.wait_for_timeout(200)
        expect(page.locator('#table tr[aria-selected="true"]').inner_text().startswith("step 3"), "Enter does not select an iteration")
        row = page.evaluate("document.activeElement.textContent")
        expect(row.startswith("step 3"), f"the chosen row loses the focus to {row[:40]}")
        page.keyboard.press("?")
        expect(page.evaluate("document.getElementById('keys').open"), "? does not show the keys")
        page.keyboard.press("Escape")
        self.close(page, "keys")

    def theme(self):
        """As the system wishes, and by the switch."""
        ground = lambda page: page.evaluate("getComputedStyle(document.body).backgroundColor")
        light, dark = self.open(self.page), self.open(self.page, scheme="dark")
        first, second = ground(light), ground(dark)
        expect(first != second, "the system's wish changes nothing")
        light.click("#theme")
        expect(ground(light) == second, "the switch changes nothing")
        self.close(light, "theme-switched")
        self.close(dark, "theme-dark")

    def narrow(self):
        """Nothing sticks out of a telephone's screen."""
        page = self.open(self.page, size=(390, 844))
        wide = page.evaluate("document.scrollingElement.scrollWidth")
        expect(wide <= 390, f"{wide} points wide on 390")
        self.close(page, "narrow")

    def ranks(self):
        """Two ranks, one page."""
        page = self.open(self.html("ranks.html", self.small, self.trace("other.trace", 40_000, 20, 1)))
        expect(page.locator(".rank").count() == 2, "not two ranks side by side")
        first = page.inner_text("#figures")
        page.click(".rank >> nth=1")
        page.wait_for_selector('.rank[aria-pressed="true"] >> text=rank 1')
        expect(page.inner_text("#figures") != first, "another rank has the same figures")
        page.select_option("#recording", "0")
        page.wait_for_selector('.rank[aria-pressed="true"] >> text=rank 0')
        expect(page.inner_text("#figures") == first, "the selector does not bring rank 0 back")
        self.close(page, "ranks")

    def job(self):
        """The page of a job's folder: what stands out, a row for each rank, and a link to the page of a rank that lies beside it."""
        for rank in range(2):
            self.trace(pathlib.Path("job") / f"{rank}.trace", 20_000, 10, rank)
        self.html("0.html", self.work / "job" / "0.trace")
        page = self.open(self.html("job.html", self.work / "job"))
        expect("2 ranks on 1 host" in page.inner_text("h2"), page.inner_text("h2"))
        rows = page.locator(".table-box >> nth=0 >> tbody tr")
        expect(rows.count() == 2, f"{rows.count()} rows for 2 ranks")
        links = page.locator(".table a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
        expect(links == ["./0.html"], f"links to {links}")
        page.hover("canvas.ranks-map")
        expect("rank" in page.inner_text("#tip"), page.inner_text("#tip"))
        page.click("#theme")
        self.close(page, "job")

    def hostile(self):
        """A path full of markup stays text."""
        trace = self.trace(pathlib.Path("<") / HOSTILE, 2_000, 2)
        page = self.open(self.html("hostile.html", trace))
        expect(page.locator("img").count() == 0, "an element came out of a name")
        expect(HOSTILE in page.inner_text("#program"), page.inner_text("#program"))
        self.close(page, "hostile")

    def empty(self):
        """Where there is nothing to show, the page says so."""
        page = self.open(self.html("empty.html", self.trace("empty.trace", 0, 0)))
        expect("no allocation" in page.inner_text("#problems"), page.inner_text("#problems"))
        for key in ("p", "+", "ArrowLeft", "]", "z", "0", "Escape", "t"):
            page.keyboard.press(key)
        self.close(page, "empty")

    def large(self):
        """As many events as the page is made for: its size, and the time until it answers."""
        trace = self.trace("large.trace", self.options.large)
        html = self.html("large.html", trace)
        trace.unlink()
        size = html.stat().st_size
        expect(size < SIZE_LIMIT, f"{size:,} bytes")
        # How long that takes is said and not judged: the machine may be busy. scripts/bench page measures it.
        times = []
        for _ in range(self.options.loads):
            page = self.open(html)
            times.append(page.evaluate("performance.getEntriesByName('ready')[0].startTime"))
            if len(times) < self.options.loads:
                page.context.close()
        page.focus("#charts")
        took = page.evaluate("""async () => {
            const from = performance.now();
            document.getElementById('charts').dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }));
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            return performance.now() - from;
        }""")
        self.close(page, "large")
        return f"{size / (1 << 20):.1f} MiB, ready after {min(times):.0f} ms, a zoom takes {took:.0f} ms"

    def all(self):
        self.small = self.trace("small.trace", 100_000, 40)
        self.page = self.html("small.html", self.small)
        failures = 0
        for test in (self.figures, self.findings, self.pointer, self.keys, self.theme, self.narrow, self.ranks, self.job, self.hostile, self.empty, self.large):
            if self.options.only not in (None, test.__name__):
                continue
            try:
                said = test()
                print(f"ok   page: {test.__doc__.splitlines()[0]}{f' ({said})' if said else ''}", flush=True)
            except Exception as failure:
                failures += 1
                print(f"FAIL page: {test.__doc__.splitlines()[0]}\n       {type(failure).__name__}: {failure}", flush=True)
        shutil.rmtree(self.work, ignore_errors=True)
        return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "dist", "maker"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--shots", type=pathlib.Path, help="where to leave pictures of the pages")
    parser.add_argument("--large", type=int, default=5_000_000, metavar="EVENTS")
    parser.add_argument("--loads", type=int, default=1, help="how often the large page is loaded; the fastest is said")
    parser.add_argument("--only", help="one of the tests: large")
    options = parser.parse_args()
    python, reason = environment(options.target, "page", "requirements-page.txt")
    if python and pathlib.Path(sys.prefix) != python.parent.parent:
        # Playwright is in that environment.
        return subprocess.run([python, *sys.argv]).returncode
    if reason:
        print(f"skip page: {reason}")
        return 3
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser, problem = browser_of(playwright, sys.executable)
        if browser is None:
            print(f"skip page: {problem}")
            return 3
        return 1 if Tester(options, browser).all() else 0


if __name__ == "__main__":
    sys.exit(main())
