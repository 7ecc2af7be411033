"""The pictures of the report in docs/images: two real models on real photographs, in Chromium without a network.

Needs Chromium and its driver, and selenium; about three minutes on two cores, or seconds with a folder that is there.

    python docs/images/make_images.py [--folder FOLDER]
"""

import argparse
import base64
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from davylamp.engine import ResultsStore, evaluate, make_plan
from davylamp.engine.plan.config_file import config_from
from davylamp.report.page.build import build_report, write_file

HERE = Path(__file__).parent
MOST = 250_000  # bytes of a picture
SETTINGS = {
    "models": ["demo:efficientnet-lite0", "demo:efficientnet-lite2"],
    "attacks": [
        {"attack": "foolbox:pgd", "epsilon": "1/255", "parameters": {"steps": 5}},
        {"attack": "torchattacks:pgd", "epsilon": "1/255", "parameters": {"steps": 5}},
        {"attack": "foolbox:fgsm", "epsilon": "1/255"},
        {"attack": "torchattacks:fgsm", "epsilon": "1/255"},
    ],
    "data": "demo:imagenet",
    "limit": 20,
}
# Name, width, height, colour scheme, what is scrolled to.
SHOTS = (
    ("report", 1400, 900, "light", ""),
    ("report-dark", 1400, 900, "dark", ""),
    ("report-tablet", 768, 1024, "light", ""),
    ("report-phone", 390, 844, "dark", ""),
    ("report-gallery", 1400, 900, "light", "#gallery"),
    ("report-curves", 1400, 900, "light", "#curves"),
)


def main() -> None:
    """Evaluate, unless a folder is given, build the page and take every picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=None, help="results folder; default: a new one is evaluated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "efficientnet"
        if options.folder is None:
            evaluate(make_plan(config_from(SETTINGS)), ResultsStore(folder))
        page = write_file(build_report(folder), Path(scratch) / "report.html")
        browser = open_browser(scratch)
        try:
            for name, width, height, scheme, anchor in SHOTS:
                picture = take(browser, page, width, height, scheme, anchor)
                (HERE / f"{name}.png").write_bytes(picture)
        finally:
            browser.quit()


def open_browser(profile: str) -> Any:
    """Chromium without a window and without a network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    flags = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    )
    for flag in (*flags, f"--user-data-dir={profile}/chromium"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))


def take(browser: Any, page: Path, width: int, height: int, scheme: str, anchor: str) -> bytes:
    """What a window of this size shows, as a PNG of at most `MOST` bytes."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    if anchor:
        browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", anchor)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    image = Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")
    for colours in (None, 256, 128, 64, 32):
        file, smaller = io.BytesIO(), image
        if colours is not None:
            smaller = image.quantize(colours, dither=Image.Dither.NONE)
        smaller.save(file, "PNG", optimize=True)
        if file.tell() < MOST:
            break
    return file.getvalue()


if __name__ == "__main__":
    main()
