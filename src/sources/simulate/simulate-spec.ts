export interface SimulateSpec {
  /** Of one turn of a sine or ramp. */
  periodMs: number;
}
export interface SimulateValue {
  shape: 'sine' | 'ramp' | 'walk' | 'noise' | 'step';
  low: number;
  high: number;
}
