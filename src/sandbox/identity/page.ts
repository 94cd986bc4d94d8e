import type { Answer } from '../http/call.ts';

/**
 * Returns a page of the identity application. `content` is HTML in which external text must be escaped with `escaped`.
 */
export function html(status: number, content: string): Answer {
  const text = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Identity · sandbox</title>
<style>body{font:16px sans-serif;max-width:24rem;margin:4rem auto}label{display:block;margin:.7rem 0}input,textarea{display:block;width:100%}.bad{color:#b00}</style>
<h1>Sandbox</h1>${content}</html>`;
  return {
    status,
    text,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    },
  };
}

export function escaped(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return text.replaceAll(/[&<>"']/g, (character) => names[character]!);
}
