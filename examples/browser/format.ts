// Formats numbers for display.

const kUnits = ['B', 'kB', 'MB', 'GB', 'TB'];

/** 1500 → "1.50 kB", in powers of 1000 as on the command line and at Hugging Face. */
export function bytes(n: number): string {
  let unit = 0;
  while (n >= 999.5 && unit < kUnits.length - 1) {
    n /= 1000;
    unit++;
  }
  const digits = unit === 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
  return `${n.toFixed(digits)} ${kUnits[unit]}`;
}

/** 1100000000 → "1.1 billion". */
export function count(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} billion`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(n >= 1e7 ? 0 : 1)} million`;
  return n.toLocaleString('en');
}

export function seconds(s: number): string {
  s = Math.ceil(s);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${(s / 3600).toFixed(1)} h`;
}

export function rate(perSecond: number): string {
  if (perSecond >= 100 || perSecond === 0) return perSecond.toFixed(0);
  return perSecond >= 10 ? perSecond.toFixed(1) : perSecond.toPrecision(2);
}

/** 0.314 → "31 %". */
export const percent = (share: number): string => `${Math.round(100 * share)} %`;

/** "just now", "5 min ago", "3 h ago", or the day. */
export function ago(time: number): string {
  const minutes = (Date.now() - time) / 60_000;
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${Math.floor(minutes)} min ago`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return new Date(time).toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}

/** Last part of a URL, percent-decoded if possible. */
export function fileName(url: string): string {
  const last =
    url
      .replace(/[?#].*/, '')
      .split('/')
      .pop() ?? url;
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}
