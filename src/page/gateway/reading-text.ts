/** Numbers of the plant as people read them: as many digits as say something. Pure. */
export function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const text = value.toPrecision(6);
  return text.includes('e') ? String(Number(text)) : String(Number.parseFloat(text));
}

/** A reading with its unit, where that is more than a number of the platform's list. */
export function readingText({ value, unit }: { value: number | null; unit: string }): string {
  if (value === null) return '–';
  if (unit === '' || unit === 'one') return numberText(value);
  return /^\d+$/.test(unit)
    ? `${numberText(value)} (unit ${unit})`
    : `${numberText(value)} ${unit.replaceAll('_', ' ')}`;
}
