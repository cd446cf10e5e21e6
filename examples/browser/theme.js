// Theme: light, dark, or that of the system. A classic script, so that it runs before the first
// paint.
(() => {
  const next = { auto: 'light', light: 'dark', dark: 'auto' };
  const names = { auto: 'system', light: 'light', dark: 'dark' };
  const stored = () => {
    try {
      return localStorage.getItem('theme') ?? 'auto';
    } catch {
      return 'auto'; // no access to storage
    }
  };
  let theme = next[stored()] ? stored() : 'auto';
  const show = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById('theme');
    if (!button) return;
    button.title = `Theme: ${names[theme]}`;
    button.setAttribute('aria-label', button.title);
  };
  show();
  document.addEventListener('DOMContentLoaded', () => {
    show();
    document.getElementById('theme').addEventListener('click', () => {
      theme = next[theme];
      try {
        localStorage.setItem('theme', theme);
      } catch {
        // no storage: not remembered
      }
      show();
    });
  });
})();
