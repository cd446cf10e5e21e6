// Light, dark, or as the system says. A plain script, so that the choice is there before the first paint.
(() => {
  const next = { auto: 'light', light: 'dark', dark: 'auto' };
  const names = { auto: 'as the system', light: 'light', dark: 'dark' };
  const stored = () => {
    try {
      return localStorage.getItem('theme') ?? 'auto';
    } catch {
      return 'auto'; // storage is forbidden here
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
        // kept for this visit only
      }
      show();
    });
  });
})();
