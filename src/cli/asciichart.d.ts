declare module 'asciichart' {
  interface PlotOptions {
    height?: number;
    format?: (value: number) => string;
  }
  const asciichart: { plot(values: number[], options?: PlotOptions): string };
  export default asciichart;
}
