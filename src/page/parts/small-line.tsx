/** The shape of the last readings, from digits and letters (base 36): the lowest is `0`. What it says stands beside it in numbers. */
export function SmallLine({ shape }: { shape: string }) {
  const step = 96 / Math.max(1, shape.length - 1);
  const points = [...shape].map((letter, at) => `${2 + at * step},${22 - Number.parseInt(letter, 36) * 0.57}`);
  return (
    <svg class="small-line" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(' ')} />}
    </svg>
  );
}
