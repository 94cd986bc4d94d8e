/** Formats a number with up to six significant digits. */
export function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const text = value.toPrecision(6);
  return text.includes('e') ? String(Number(text)) : String(Number.parseFloat(text));
}

/** Formats a reading with its unit. */
export function readingText({ value, unit }: { value: number | null; unit: string }): string {
  if (value === null) return '–';
  return unit === '' || unit === 'one' ? numberText(value) : `${numberText(value)} ${unitText(unit)}`;
}

const SYMBOLS: Readonly<Record<string, string>> = {
  ampere: 'A',
  cubic_meter: 'm³',
  day: 'd',
  degree_celsius: '°C',
  degree_fahrenheit: '°F',
  gram: 'g',
  hertz: 'Hz',
  hour: 'h',
  kelvin: 'K',
  kilogram: 'kg',
  kilometer: 'km',
  kilopascal: 'kPa',
  kilowatt: 'kW',
  kilowatt_hour: 'kWh',
  liter: 'L',
  megawatt: 'MW',
  meter: 'm',
  milliampere: 'mA',
  millibar: 'mbar',
  milligram: 'mg',
  milliliter: 'mL',
  millimeter: 'mm',
  minute: 'min',
  pascal: 'Pa',
  percent: '%',
  ph: 'pH',
  second: 's',
  square_meter: 'm²',
  ton: 't',
  tonne: 't',
  volt: 'V',
  watt: 'W',
};

/**
 * Returns the symbol of a unit code, `m³/h` for `cubic_meter_per_hour`, or the code itself if it is unknown. A number
 * is a unit ID.
 */
export function unitText(unit: string): string {
  if (/^\d+$/.test(unit)) return `(unit ${unit})`;
  return unit
    .split('_per_')
    .map((code) => SYMBOLS[code] ?? code.replaceAll('_', ' '))
    .join('/');
}
