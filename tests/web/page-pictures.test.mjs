// Pictures on the page, over the real engine and a model with a projector (../shared/fixtures): the
// cost before a picture is sent, a picture in the conversation after a reload, pasting, and a model
// that takes none.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { extent } from '../extent.mjs';
import { crossOrigin } from './chromium.mjs';
import { root } from './helpers.mjs';
import { smallTargets, tooWide, unnamed } from './page-checks.mjs';
import { load, openSite, ready, say, shows, violations } from './page-site.mjs';

const shots = join(root, 'build', 'screenshots');
const vision = join(root, '..', 'shared', 'fixtures', 'vision');
const picture = join(root, 'tests', 'data', 'pictures', 'rgb.jpg');
const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };

describe('pictures on the page', { skip: !existsSync(vision) && 'no ../shared/fixtures' }, () => {
  let pages;
  let files;
  before(async () => {
    mkdirSync(shots, { recursive: true });
    pages = await openSite('site-pictures');
    files = await serve([['/vision/', vision]], crossOrigin);
  });
  after(async () => {
    await pages?.close();
    await files?.close();
  });

  async function loadSeeing(page) {
    const fill = () =>
      page.evaluate(
        ([url, projector]) => {
          for (const [id, value] of [
            ['url', url],
            ['projector', projector],
          ])
            document.getElementById(id).value = value;
        },
        [`${files.url}/vision/qwen2vl.gguf`, `${files.url}/vision/qwen2vl.mmproj.gguf`],
      );
    await fill();
    await page.evaluate(() => document.getElementById('load').click());
    await ready(page);
  }

  for (const [name, options] of [
    ...extent([], [['desktop', {}]]), // the next test has pictures on one
    ['phone', phone],
  ])
    test(`a picture has its price, is sent and is kept: ${name}`, () =>
      pages.withTabs(async (open) => {
        const page = await open();
        assert.equal(await page.isVisible('#add-picture label'), false);
        await loadSeeing(page);
        if (options.isMobile) await page.tap('.panes [data-pane=talk]');
        // The model has no chat template, so the page would continue texts.
        await page.evaluate(() => document.querySelector('input[name=mode][value=chat]').click());
        // A phone offers its camera for this.
        assert.equal(await page.getAttribute('#picture', 'accept'), 'image/*');
        await page.setInputFiles('#picture', [picture, picture]);
        await shows(page, '#pictures li', /^\d+ tokens, [\d.]+ [kM]B while it is read$/);
        await page.click('#pictures li:nth-child(2) button');
        assert.equal(await page.locator('#pictures li').count(), 1);
        await page.screenshot({ path: join(shots, `pictures-${name}.png`) });
        assert.deepEqual(await violations(page), []);
        for (const check of [tooWide, unnamed, ...(options.isMobile ? [smallTargets] : [])])
          assert.deepEqual(await page.evaluate(check), [], check.name);
        await say(page, 'What is it?');
        await page.waitForSelector('.note:not(:empty)');
        assert.equal(await page.locator('.user .thumbnail').count(), 1);
        assert.equal(await page.locator('#pictures li').count(), 0);
        assert.equal(await page.locator('.problem:visible').count(), 0);
        await page.screenshot({ path: join(shots, `pictures-${name}-sent.png`) });

        await page.reload();
        await page.waitForSelector('.user .thumbnail', { state: 'attached' });
        await loadSeeing(page);
        if (options.isMobile) await page.tap('.panes [data-pane=talk]');
        await say(page, 'And now?');
        await page.waitForFunction(
          () => document.querySelectorAll('.note:not(:empty)').length === 2,
        );
        assert.equal(await page.locator('.problem:visible').count(), 0);
      }, options));

  test('a picture is pasted and dropped, and what is no picture says so', () =>
    pages.withTabs(async (open) => {
      const page = await open();
      await loadSeeing(page);
      const bytes = [...readFileSync(picture)];
      const give = (kind) =>
        page.evaluate(
          ([kind, bytes]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], 'a.jpg', { type: 'image/jpeg' }));
            const target = document.getElementById('prompt');
            const options = { bubbles: true, cancelable: true };
            target.dispatchEvent(
              kind === 'paste'
                ? new ClipboardEvent('paste', { ...options, clipboardData: data })
                : new DragEvent('drop', { ...options, dataTransfer: data }),
            );
          },
          [kind, bytes],
        );
      await give('paste');
      await page.waitForFunction(() => document.querySelectorAll('#pictures li').length === 1);
      await give('drop');
      await page.waitForFunction(() => document.querySelectorAll('#pictures li').length === 2);
      await page.setInputFiles('#picture', {
        name: 'b.png',
        mimeType: 'image/png',
        buffer: Buffer.from('no picture'),
      });
      await shows(page, '#pictures li:nth-child(3)', /could not be decoded/);
    }));

  test('a model without a projector takes no pictures', () =>
    pages.withTabs(async (open) => {
      const page = await open('?model=/models/sluice-tales-Q4_0.gguf');
      await load(page);
      assert.equal(await page.isVisible('#add-picture label'), false);
    }));
});
