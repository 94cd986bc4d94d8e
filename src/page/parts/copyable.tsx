import { useState } from 'preact/hooks';

/**
 * A command with a button that copies it, or selects it if the clipboard is not available (plain HTTP except on
 * loopback).
 */
export function Copyable({ text }: { text: string }) {
  const [result, show] = useState('');
  const copy = async (button: HTMLElement) => {
    try {
      await navigator.clipboard.writeText(text);
      show('Copied');
    } catch {
      const code = button.parentElement?.querySelector('code');
      if (code) window.getSelection()?.selectAllChildren(code);
      show('Selected');
    }
    window.setTimeout(() => show(''), 2_000);
  };
  return (
    <span class="copyable">
      <code>{text}</code>
      <button type="button" aria-label={`Copy: ${text}`} onClick={(event) => void copy(event.currentTarget)}>
        {result || 'Copy'}
      </button>
      <span class="unseen" role="status">
        {result}
      </span>
    </span>
  );
}
