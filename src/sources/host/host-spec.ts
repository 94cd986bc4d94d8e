export type HostSpec = true;
export interface HostValue {
  reading: string;
}
