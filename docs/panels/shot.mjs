// Open one dashboard in headless Chromium, report every panel's state, and save a picture.
//   node shot.mjs NAME.json OUT.png SECONDS [PORT] [MORE-PARAMETERS]
import { chromium } from 'playwright-core';
const [, , dash, out, span, port = '19200', extra = ''] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'] });
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
const errors = [];
page.on('pageerror', e => errors.push(String(e).slice(0, 300)));
const to = Date.now();
await page.goto(`http://127.0.0.1:${port}/?d=/dashboards/${dash}&to=${to}&from=${to - Number(span) * 1000}${extra}`);
await page.waitForFunction(() => { const p = [...document.querySelectorAll('[data-panel]')]; return p.length && p.every(x => x.dataset.state !== 'loading'); }, null, { timeout: 30000 }).catch(e => errors.push(String(e)));
await page.waitForTimeout(800);
const panels = await page.evaluate(() => [...document.querySelectorAll('[data-panel]')].map(x => ({ title: x.dataset.panel, state: x.dataset.state, series: x.dataset.series, error: x.dataset.error, empty: !!x.querySelector('[data-empty]'), unsupported: !!x.querySelector('[data-unsupported]') })));
for (const p of panels) console.log(JSON.stringify(p));
for (const e of errors.slice(0, 6)) console.log('page error: ' + e);
await page.screenshot({ path: out, fullPage: true });
await browser.close();
process.exit(errors.length || panels.some(p => p.error || p.unsupported) ? 1 : 0);
