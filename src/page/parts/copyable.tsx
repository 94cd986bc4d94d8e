import { useState } from 'preact/hooks';

/** A command, and a button that copies it. Without the clipboard (plain http elsewhere than on loopback) it is selected instead. */
export function Copyable({ text }: { text: string }) {
  const [said, say] = useState('');
  const copy = async (button: HTMLElement) => {
    try {
      await navigator.clipboard.writeText(text);
      say('copied');
    } catch {
      const code = button.parentElement?.querySelector('code');
      if (code) window.getSelection()?.selectAllChildren(code);
      say('selected');
    }
    window.setTimeout(() => say(''), 2_000);
  };
  return (
    <span class="copyable">
      <code>{text}</code>
      <button type="button" aria-label={`copy: ${text}`} onClick={(event) => void copy(event.currentTarget)}>
        {said || 'copy'}
      </button>
      <span class="unseen" role="status">
        {said}
      </span>
    </span>
  );
}
