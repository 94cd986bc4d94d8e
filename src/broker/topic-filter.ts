/** Whether a topic falls under a filter with `+` and `#` (MQTT 3.1.1 section 4.7). */
export function topicFits(filter: string, topic: string): boolean {
  // A wildcard at the beginning does not reach the broker's own topics (4.7.2).
  if (topic.startsWith('$') && /^[+#]/.test(filter)) return false;
  const wanted = filter.split('/');
  const found = topic.split('/');
  for (const [index, level] of wanted.entries()) {
    if (level === '#') return true;
    if (index >= found.length) return false;
    if (level !== '+' && level !== found[index]) return false;
  }
  return wanted.length === found.length;
}
