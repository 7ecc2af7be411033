"""A lab's afternoon in a browser without a network: sign in, upload, start a task, watch it, hide it from another."""

import re
import shutil
import tempfile
import threading
import time
import warnings

import pytest

from davylamp.server.tasks.work import TaskWorker, WorkerSettings

from .conftest import ATTACK, DEFENCE, PASSWORD

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver (Debian: chromium, chromium-driver)"
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@pytest.fixture
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as profile, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        yield driver
        driver.quit()


class Person:
    """Somebody in front of the browser."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address

    def go(self, path):
        self.driver.get(self.address + path)
        return self.driver.page_source

    def fill(self, **values):
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import Select

        for name, value in values.items():
            field = self.driver.find_element(By.CSS_SELECTOR, f"main [name={name}]")
            if field.tag_name == "select":
                next(each for each in Select(field).options if each.get_attribute("value") == value).click()
            else:
                if field.get_attribute("type") != "file":
                    field.clear()
                field.send_keys(str(value))

    def press(self, css):
        """Press what leads to another page, and wait for that."""
        from selenium.webdriver.common.by import By

        button = self.driver.find_element(By.CSS_SELECTOR, css)
        self.driver.execute_script("arguments[0].closest('details')?.setAttribute('open', '')", button)
        self.driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", button)
        before = self.driver.find_element(By.TAG_NAME, "html").id
        button.click()
        for _ in range(100):
            if self.driver.find_element(By.TAG_NAME, "html").id != before:
                return
            time.sleep(0.05)
        raise AssertionError(f"{css} led nowhere: {self.driver.current_url}")

    def text(self, css):
        from selenium.webdriver.common.by import By

        return " ".join(each.text for each in self.driver.find_elements(By.CSS_SELECTOR, css))

    def sign_in(self, name):
        self.driver.delete_all_cookies()
        self.go("/sign-in")
        self.fill(name=name, password=PASSWORD)
        self.press("#sign-in")
        assert self.text("#viewer") == name


def everyone_can_use(person, axe, paths):
    """axe-core finds nothing on any kind of page, and none scrolls sideways on a phone."""
    places = (
        "/",
        "/?kind=attacks",
        "/?kind=defences",
        "/evaluations",
        "/tasks",
        "/tasks/new",
        "/components",
        "/components/new",
        "/cells",
        "/cells/1",
    )
    troubles = {}
    for path in (*places, "/compare", "/account", "/api", *paths):
        person.go(path)
        if violations := axe(person.driver):
            troubles[path] = violations
        person.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        )
        wider = person.driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if wider > 0:
            troubles[f"{path} on a phone"] = wider
        person.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert troubles == {}


def test_an_afternoon(browser, address, folder, embedded, tmp_path, in_process, axe):
    for name, content in (("step.py", ATTACK), ("rounded.py", DEFENCE)):
        (tmp_path / name).write_text(content)
    alice = Person(browser, address)
    assert "no finished run matches" in alice.go("/")
    alice.sign_in("alice")
    for kind, entry, file in (("attack", "sign_step", "step.py"), ("defence", "rounded", "rounded.py")):
        alice.go("/components/new")
        alice.fill(kind=kind, form="code", entry=entry, file=tmp_path / file, name=f"my-{kind}", visibility="public")
        alice.press("#add")
        assert f"my-{kind}" in alice.text("h1")
    attack = int(re.search(r"/components/(\d+)", alice.go("/components?kind=attack").split("my-attack")[0][-40:])[1])

    alice.go("/tasks/new")
    chosen = ["demo:mnist-lenet5", "demo:mnist-lenet5-robust", "foolbox:fgsm", "torchattacks:pgd", "demo:mnist"]
    numbers = [attack, attack + 1, *(embedded[entry] for entry in chosen)]
    for number in numbers:
        browser.execute_script(f"document.querySelector('input[value=\"{number}\"][type=checkbox]').click()")
    alice.fill(norm="linf", epsilon="0.2", limit="6", title="two by three by six", visibility="public")
    alice.press("#start")
    assert alice.text("#state") == "waiting"
    task = int(browser.current_url.rpartition("/")[2])

    worker = threading.Thread(target=TaskWorker(folder, WorkerSettings(lease=1.0, trust=True)).run_one)
    worker.start()
    seen = []
    for _ in range(240):
        state = browser.execute_script("return document.querySelector('#state').textContent")
        seen += [state] if state not in seen else []
        if state == "done":
            break
        time.sleep(0.25)
    worker.join()
    assert seen[0] == "waiting"
    assert seen[-1] == "done"
    time.sleep(0.3)  # the page loads itself again, with the cells
    assert "12 shown" in alice.text("caption")  # 2 models, each without and with the defence, by 3 attacks

    everyone_can_use(alice, axe, (f"/components/{attack}", f"/tasks/{task}"))

    alice.go("/")
    assert "demo:mnist-lenet5-robust" in alice.text("#board")
    assert "my-attack" in alice.go("/?kind=attacks")
    alice.go(f"/components/{attack}")
    browser.execute_script(
        "document.querySelector('details').open = true; document.querySelector('[name=visibility]').value = 'private'"
    )
    alice.press("#save")
    assert alice.text("#visibility") == "private"

    alice.sign_in("bob")
    for path in ("/", "/?kind=attacks", "/?kind=defences", "/tasks", "/components", "/cells", "/compare"):
        page = alice.go(path)
        assert "my-attack" not in page
        assert "sign_step" not in page
        assert "two by three" not in page
    assert "no finished run matches" in alice.go("/")
    for path in (f"/components/{attack}", f"/tasks/{task}", f"/tasks/{task}/report", "/cells/1"):
        assert "that you can see" in alice.go(path)
    loud = [line for line in browser.get_log("browser") if "404" not in line["message"]]
    assert loud == []  # nothing broke the policy, nothing was asked of elsewhere
