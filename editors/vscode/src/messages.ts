/** The messages between the panel's page, the extension and the server. */

/** The question for the rows below a row; only the server reads more than `uri`. */
export interface Below {
  uri?: string;
}

/** A row of `pyprof2.breakdown`; lines from 0. */
export interface Row {
  kind: string;
  name: string;
  time: string;
  time_pct: number;
  memory: string;
  memory_pct: number | null;
  detail: string;
  stale: boolean;
  uri: string | null;
  first: number;
  last: number;
  below: Below | null;
}

/** The answer of `pyprof2.breakdown`. */
export interface Breakdown {
  ok: boolean;
  text: string;
  rows: Row[];
  ledger?: string;
  memory_of?: string;
}

export interface Place {
  uri: string;
  first: number;
  last: number;
}

export type FromPage =
  | { type: "ask"; id: number; below: Below | null }
  | { type: "light"; place: Place | undefined }
  | { type: "open"; place: Place };

export type ToPage =
  | { type: "rows"; id: number; breakdown: Breakdown }
  | { type: "changed" }
  | { type: "here"; uri: string; line: number };
