// Checks that every state of the page must pass, run in the page itself: contrast, size of touch
// targets, width, names. Each function is sent to the page as text and returns what is wrong.

/** Text with a contrast below 4.5, or below 3 if large. */
export function lowContrast() {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const parse = (color) => known.get(color) ?? known.set(color, read(color)).get(color);
  const read = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement)
      layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) =>
      c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility({ visibilityProperty: true }))
      continue;
    if (element.closest('script, noscript, option, :disabled, .visually-hidden, .skip:not(:focus)'))
      continue;
    const style = getComputedStyle(element);
    const under = behind(element);
    const [a, b] = [luminance(over(parse(style.color), under)), luminance(under)].sort(
      (x, y) => y - x,
    );
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5))
      wrong.push(`${ratio.toFixed(2)}: "${node.textContent.trim().slice(0, 40)}"`);
  }
  return wrong;
}

/** Touch targets that are less than 44 pixels high or wide. */
export function smallTargets() {
  const tapped =
    'button, select, summary, a, textarea, .button, .segments label, input:not([type=radio]):not(.hidden-input)';
  return [...document.querySelectorAll(tapped)]
    .filter((element) => {
      const { width, height } = element.getBoundingClientRect();
      return (
        element.checkVisibility({ visibilityProperty: true }) &&
        !element.matches('.skip') &&
        (width < 44 || height < 44)
      );
    })
    .map((element) => {
      const { width, height } = element.getBoundingClientRect();
      return `${element.tagName} ${element.id || element.textContent.trim().slice(0, 20)} ${Math.round(width)} × ${Math.round(height)}`;
    });
}

/** Elements that extend beyond the window, and overflow of the page. */
export function tooWide() {
  const wide = [...document.querySelectorAll('body *')].filter((element) => {
    const { right, width } = element.getBoundingClientRect();
    return (
      element.checkVisibility() &&
      width > 1 &&
      right > innerWidth + 0.5 &&
      !element.closest('pre, .visually-hidden, .drop')
    );
  });
  const over = document.documentElement.scrollWidth - innerWidth;
  return [
    ...wide.map((e) => `${e.tagName}.${e.className} ${e.id}`),
    ...(over > 0 ? [`${over} pixels too wide`] : []),
  ];
}

/** Controls without a name, and duplicate ids. */
export function unnamed() {
  const nameOf = (e) =>
    e.getAttribute('aria-label') ||
    e.textContent.trim() ||
    [...(e.labels ?? [])].map((l) => l.textContent.trim()).join('');
  const controls = [
    ...document.querySelectorAll('button, input, select, textarea, [role=img], progress'),
  ];
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  return [
    ...controls.filter((e) => !nameOf(e)).map((e) => e.outerHTML.slice(0, 80)),
    ...ids.filter((id, i) => ids.indexOf(id) !== i),
  ];
}
