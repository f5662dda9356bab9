#!/usr/bin/env python3
"""Reports in a browser: opened, sorted, zoomed, in the dark and on a phone.

    tests/report_browser.py PROGRAM [FOLDER]   exit status 0: as it must be; 1: not so; 77: no browser here

FOLDER keeps the screenshots. Chromium is driven through chromedriver (WebDriver over HTTP on this machine).
"""
import base64
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SKIPPED = 77
EVENTS, LOAD_MS = 1_000_000, 2000
HOSTILE = '</script><script>window.taken = 1</script><img src=x onerror="window.taken = 1">'


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def check(holds, what):
    if not holds:
        print(f'FAILED: {what}')
        sys.exit(1)


class Browser:
    """One window of Chromium."""

    def __init__(self, folder):
        if not shutil.which('chromedriver') or not shutil.which('chromium'):
            skip("no chromium or chromedriver here: Debian's packages are chromium and chromium-driver")
        self.process = subprocess.Popen(['chromedriver', '--port=0'], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, cwd=folder,
                                        env={**os.environ, 'HOME': folder})
        port = None
        for line in self.process.stdout:
            port = re.search(r'started successfully on port (\d+)', line)
            if port:
                break
        if not port:
            skip('chromedriver does not start')
        self.address = f'http://127.0.0.1:{port[1]}'
        arguments = ['--headless=new', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars',
                     '--window-size=1280,900', f'--user-data-dir={folder}/profile']
        if os.getuid() == 0:
            arguments.append('--no-sandbox')
        wanted = {'browserName': 'chrome', 'goog:chromeOptions': {'args': arguments},
                  'goog:loggingPrefs': {'browser': 'ALL', 'performance': 'ALL'}}
        try:
            session = self.call('/session', {'capabilities': {'alwaysMatch': wanted}})
        except (urllib.error.URLError, TimeoutError) as error:
            self.process.kill()
            skip(f'chromium does not start: {error}')
        self.address += f"/session/{session['sessionId']}"
        # The browser's own first page asks for what is its own.
        self.call('/url', {'url': 'about:blank'})
        self.call('/se/log', {'type': 'performance'})

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())['value']

    def run(self, script, *arguments):
        return self.call('/execute/sync', {'script': script, 'args': list(arguments)})

    def devtools(self, command, **parameters):
        return self.call('/goog/cdp/execute', {'cmd': command, 'params': parameters})

    def open(self, path):
        """Returns after how many milliseconds the page was drawn."""
        self.call('/url', {'url': 'file://' + path})
        for _ in range(600):
            ready = self.run('return document.documentElement.dataset.ready || null')
            if ready is not None:
                return int(ready)
            time.sleep(0.05)
        check(False, f'{path} is not drawn: {self.call("/se/log", {"type": "browser"})}')

    def mouse(self, *steps):
        self.call('/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'actions': list(steps),
                                            'parameters': {'pointerType': 'mouse'}}]})

    def screenshot(self, path):
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.call('/screenshot')))

    def close(self):
        try:
            urllib.request.urlopen(urllib.request.Request(self.address, method='DELETE'), timeout=30)
        except (urllib.error.URLError, TimeoutError):
            pass
        self.process.terminate()
        self.process.wait()


def move(x, y):
    return {'type': 'pointerMove', 'x': int(x), 'y': int(y), 'duration': 20}


DOWN, UP = {'type': 'pointerDown', 'button': 0}, {'type': 'pointerUp', 'button': 0}


# ---- results to look at ----

def write_trace(path):
    """A million events whose memory goes up and down."""
    chance, live, number = random.Random(1), [], 0
    with open(path, 'w', encoding='ascii') as file:
        for event in range(EVENTS):
            if live and (len(live) > 400 or chance.random() < 0.48):
                place = chance.randrange(len(live))
                live[place], live[-1] = live[-1], live[place]
                file.write(f'f {live.pop()}\n')
            else:
                number += 1
                live.append(number)
                file.write(f'a {number} {int(2 ** chance.uniform(12, 27))}\n')


def lakebed(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f'lakebed {" ".join(arguments)}: {done.stderr}')


def make_reports(program, folder):
    write_trace(f'{folder}/million.txt')
    lakebed(program, 'replay', '-q', f'{folder}/million.txt', '-p', 'native,bfc,expandable,tfbfc,aliasheap',
            '--report', f'{folder}/million.html')
    lakebed(program, 'replay', '-q', 'multi_stream', 'sawtooth_seq', '-p', 'bfc,expandable,gmlake,aliasheap',
            '--json', f'{folder}/r.json', '--timeline', f'{folder}/t.csv', '--dump', f'{folder}/m.json',
            f'--iterations={folder}/i.csv')
    lakebed(program, 'report', *(f'{folder}/{name}' for name in ('r.json', 't.csv', 'm.json', 'i.csv')),
            '-o', f'{folder}/small.html')
    with open(f'{folder}/r.json', encoding='utf-8') as file:
        runs = json.load(file)
    for run in runs:
        run['trace'] = run['spec'] = HOSTILE
        run['operations'] = {HOSTILE: {'count': 1, 'driver_us': 1}, '__proto__': {'count': 2, 'driver_us': 1}}
    with open(f'{folder}/hostile.json', 'w', encoding='utf-8') as file:
        json.dump(runs, file)
    lakebed(program, 'report', f'{folder}/hostile.json', '--title', HOSTILE, '-o', f'{folder}/hostile.html')


# ---- what is looked at ----

def check_load(browser, folder):
    times = []
    while len(times) < 3 and (not times or times[-1] >= LOAD_MS):
        times.append(browser.open(f'{folder}/million.html'))
    check(times[-1] < LOAD_MS, f'a report of a million events opens in {times} ms')
    size = os.path.getsize(f'{folder}/million.html')
    print(f'a report of {EVENTS:,} events, {size / 1e6:.1f} MB, was drawn after {times[-1]} ms')


FIRST_COLUMNS = '''return [...document.querySelectorAll('#runs tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent))'''
CLICK_HEAD = '''const head = [...document.querySelectorAll('#runs th button')].find((one) => one.textContent === arguments[0]);
head.click();
return head.parentElement.getAttribute('aria-sort')'''


def check_sorting(browser):
    check(browser.run(CLICK_HEAD, 'policy') == 'ascending', 'texts are sorted from A on first')
    names = [row[1] for row in browser.run(FIRST_COLUMNS)]
    check(names == sorted(names) and len(set(names)) == 4, f'policies are in order: {names}')
    check(browser.run(CLICK_HEAD, 'policy') == 'descending', 'a second click turns the order')
    names = [row[1] for row in browser.run(FIRST_COLUMNS)]
    check(names == sorted(names, reverse=True), f'policies are in reverse order: {names}')
    check(browser.run(CLICK_HEAD, 'driver calls') == 'descending', 'numbers are sorted from the largest on first')
    place = browser.run("return [...document.querySelectorAll('#runs th')].map((head) => head.textContent)").index('driver calls')
    calls = [int(row[place].replace(',', '')) for row in browser.run(FIRST_COLUMNS)]
    check(calls == sorted(calls, reverse=True) and len(calls) == 8, f'driver calls are in order: {calls}')
    browser.run('''const input = document.querySelector('#runs input');
if (input) { input.value = 'sawtooth gml'; input.dispatchEvent(new Event('input')); }''')


RANGE = "const chart = document.querySelector('#memory .chart').dataset; return [+chart.from, +chart.to]"


def check_zoom(browser):
    browser.run("document.documentElement.style.scrollBehavior = 'auto'; document.getElementById('memory').scrollIntoView()")
    box = browser.run('''const box = document.querySelector('#memory .chart').getBoundingClientRect();
return [box.left, box.top, box.width, box.height]''')
    left, top, width, height = box
    first = browser.run(RANGE)
    browser.mouse(move(left + width * 0.4, top + height / 2), DOWN, move(left + width * 0.5, top + height / 2),
                  move(left + width * 0.6, top + height / 2), UP)
    zoomed = browser.run(RANGE)
    share = (zoomed[1] - zoomed[0]) / (first[1] - first[0])
    check(0.15 < share < 0.3 and first[0] < zoomed[0] < zoomed[1] < first[1], f'{first} is zoomed to {zoomed}')
    browser.mouse(move(left + width * 0.5, top + height / 2), DOWN, UP, DOWN, UP)
    time.sleep(0.3)
    check(browser.run(RANGE) == first, f'a double-click shows all again: {browser.run(RANGE)}')
    browser.mouse(move(left + width * 0.45, top + height / 2))
    readout = browser.run("return document.querySelector('#memory .readout').textContent")
    check('event' in readout and 'iB' in readout, f'the place under the mouse is read out: {readout}')


PICTURE = "return [...document.querySelectorAll('#memory canvas')].map((canvas) => canvas.toDataURL()).join()"


def check_switches(browser):
    before = browser.run(PICTURE)
    browser.run("document.querySelector('#memory .chip').click()")
    check(browser.run("return document.querySelector('#memory .chip').getAttribute('aria-pressed')") == 'false',
          'a policy is switched off')
    check(browser.run(PICTURE) != before, 'its line is gone')
    browser.run("document.querySelector('#memory .chip').click()")


def check_maps(browser):
    colors = browser.run('''return [...document.querySelectorAll('#maps canvas')].map((canvas) => {
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
})''')
    check(len(colors) == 4 and min(colors) >= 3, f'maps have colors: {colors}')
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(0.2)
    check(browser.run("return document.querySelectorAll('#maps tbody tr').length") > 10, 'maps have tables')


BACKGROUND = 'return getComputedStyle(document.body).backgroundColor'


def check_themes(browser, folder, shots):
    browser.screenshot(f'{shots}/light.png')
    light = browser.run(BACKGROUND)
    browser.run("document.getElementById('theme').click()")
    dark = browser.run(BACKGROUND)
    check(light != dark, f'the button changes {light}')
    browser.screenshot(f'{shots}/dark.png')
    browser.run('localStorage.clear()')
    browser.devtools('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark'}])
    browser.open(f'{folder}/small.html')
    check(browser.run(BACKGROUND) == dark, 'a system in the dark has a dark page')
    browser.devtools('Emulation.setEmulatedMedia', features=[])


def check_phone(browser, folder, shots):
    browser.devtools('Emulation.setDeviceMetricsOverride', width=390, height=844, deviceScaleFactor=2, mobile=True)
    browser.open(f'{folder}/small.html')
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(0.3)
    sizes = browser.run('return [document.documentElement.scrollWidth, innerWidth]')
    check(sizes[0] <= 390 and sizes[1] == 390, f'a phone need not scroll sideways: {sizes}')
    browser.screenshot(f'{shots}/phone.png')
    browser.devtools('Emulation.clearDeviceMetricsOverride')


def check_hostile(browser, folder):
    browser.open(f'{folder}/hostile.html')
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(0.2)
    check(browser.run('return window.taken || null') is None, 'a name has run as a script')
    check(browser.run("return document.querySelector('#runs td').textContent") == HOSTILE, 'names are shown as they are')
    check(browser.run('return document.title') == HOSTILE, 'so is the title')


def check_quiet(browser):
    """No complaint, and nothing was asked for that is not the file."""
    errors = [entry for entry in browser.call('/se/log', {'type': 'browser'}) if entry['level'] == 'SEVERE']
    check(not errors, f'the browser complains: {errors}')
    urls = []
    for entry in browser.call('/se/log', {'type': 'performance'}):
        message = json.loads(entry['message'])['message']
        if message['method'] == 'Network.requestWillBeSent':
            urls.append(message['params']['request']['url'])
    check(urls and all(url.startswith(('file://', 'data:')) for url in urls), f'requests: {urls}')


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix='lakebed-browser.') as folder:
        shots = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else folder
        browser = Browser(folder)
        try:
            make_reports(program, folder)
            check_load(browser, folder)
            browser.open(f'{folder}/small.html')
            check_sorting(browser)
            check_zoom(browser)
            check_switches(browser)
            check_maps(browser)
            check_themes(browser, folder, shots)
            check_phone(browser, folder, shots)
            check_hostile(browser, folder)
            check_quiet(browser)
        finally:
            browser.close()


main()
