// Draws a Grafana dashboard without a Grafana server: each panel by Grafana's own React component, its
// data by the queries of the panel from the Prometheus behind serve.py. State timelines, which are not
// among the published components, are drawn here to look alike.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, ThemeContext, toDataFrame, FieldType, applyFieldOverrides, Registry, identityOverrideProcessor, numberOverrideProcessor, getFieldDisplayValues, getDisplayValueAlignmentFactors, dateTime, standardFieldConfigEditorRegistry, transformDataFrame, standardTransformersRegistry, standardTransformers, LoadingState, fieldReducers, getTimeZone } from '@grafana/data';
import { TimeSeries, BigValue, BarGauge, PanelChrome, Table, GlobalStyles, PanelContextProvider } from '@grafana/ui';
import { firstValueFrom } from 'rxjs';

const q = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: (q.get('theme') as any) ?? 'dark' } });
const to = Number(q.get('to') ?? Date.now()), from = Number(q.get('from') ?? to - 3600_000);
const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } } as any;
const step = Math.max(1, Math.round((to - from) / 1000 / 300));
const vars: Record<string, string> = { datasource: 'prom', job: '.+', instance: '.+', cluster: '.*', __rate_interval: Math.max(4 * step, 60) + 's', __interval: step + 's', __range: Math.round((to - from) / 1000) + 's', __all: '.+' };
const sub = (s: string) => s.replace(/\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)\]\]/g, (m, a, b, c) => vars[a ?? b ?? c] ?? m);
const std2: any = standardTransformers as any;
standardTransformersRegistry.setInit(() => [std2.mergeTransformer, std2.organizeFieldsTransformer, std2.orderFieldsTransformer, std2.renameFieldsTransformer, std2.filterFieldsByNameTransformer, std2.filterFieldsTransformer, std2.noopTransformer].filter(Boolean).map((t: any) => ({ id: t.id, name: t.name, transformation: async () => t, imageDark: '', imageLight: '', editor: (() => null) as any })) as any);
async function resolve(d: any) {
  for (const v of d.templating?.list ?? []) {
    const given = q.get('var-' + v.name);
    if (given) { vars[v.name] = given; continue; }
    if (v.type !== 'query' || v.allValue) continue;
    const m = /^label_values\((.*), (\w+)\)$/.exec(v.query.query);
    if (!m) continue;
    const r = await (await fetch(`/prom/api/v1/label/${m[2]}/values?` + new URLSearchParams({ 'match[]': sub(m[1]), start: String(from / 1000), end: String(to / 1000) }))).json();
    vars[v.name] = v.multi ? '(' + r.data.join('|') + ')' : (r.data[0] ?? '');
  }
}
const legendOf = (fmt: string | undefined, m: any) => fmt && fmt !== '__auto' ? fmt.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, k) => m[k] ?? '') : (m.__name__ ?? '') + '{' + Object.entries(m).filter(([k]) => k !== '__name__').map(([k, v]) => `${k}="${v}"`).join(', ') + '}';

async function run(t: any) {
  const instant = t.instant === true, u = new URLSearchParams({ query: sub(t.expr), time: String(to / 1000), start: String(from / 1000), end: String(to / 1000), step: String(step) });
  const r = await (await fetch(`/prom/api/v1/${instant ? 'query' : 'query_range'}?` + u)).json();
  if (r.status !== 'success') throw new Error(r.error);
  if (t.format === 'table') {
    const keys = [...new Set(r.data.result.flatMap((s: any) => Object.keys(s.metric)))] as string[];
    return [toDataFrame({ refId: t.refId, fields: [{ name: 'Time', type: FieldType.time, values: r.data.result.map((s: any) => (s.value ?? s.values.at(-1))[0] * 1000) }, ...keys.map(k => ({ name: k, type: FieldType.string, values: r.data.result.map((s: any) => s.metric[k] ?? '') })), { name: 'Value #' + t.refId, type: FieldType.number, values: r.data.result.map((s: any) => Number((s.value ?? s.values.at(-1))[1])) }] })];
  }
  return r.data.result.map((s: any) => { const vs = s.values ?? [s.value]; return toDataFrame({ refId: t.refId, name: legendOf(t.legendFormat, s.metric), fields: [{ name: 'Time', type: FieldType.time, values: vs.map((v: any) => v[0] * 1000) }, { name: 'Value', type: FieldType.number, labels: s.metric, config: { displayNameFromDS: legendOf(t.legendFormat, s.metric) }, values: vs.map((v: any) => Number(v[1])) }] }); });
}
const std = ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'thresholds', 'mappings', 'links', 'noValue', 'description'];
standardFieldConfigEditorRegistry.setInit(() => std.map(id => ({ id, path: id, name: id, editor: (() => null) as any, override: (() => null) as any, process: (id === 'min' || id === 'max' || id === 'decimals' ? numberOverrideProcessor : identityOverrideProcessor) as any, shouldApply: () => true, settings: {} })) as any);
function registry(fc: any) {
  const custom = new Set<string>([...Object.keys(fc.defaults?.custom ?? {}), ...(fc.overrides ?? []).flatMap((o: any) => o.properties.map((p: any) => p.id)).filter((i: string) => i.startsWith('custom.')).map((i: string) => i.slice(7))]);
  return new Registry(() => [...standardFieldConfigEditorRegistry.list(), ...[...custom].map(id => ({ id: 'custom.' + id, path: id, name: id, isCustom: true, editor: (() => null) as any, override: (() => null) as any, process: identityOverrideProcessor as any, shouldApply: () => true, settings: {} }))] as any) as any;
}
async function load(p: any) {
  const raw = (await Promise.all((p.targets ?? []).filter((t: any) => !t.hide && t.expr).map(run))).flat();
  const fc = p.fieldConfig ?? { defaults: {}, overrides: [] };
  let data = raw;
  if (p.transformations?.length) data = await firstValueFrom(transformDataFrame(p.transformations, raw) as any);
  return applyFieldOverrides({ data, fieldConfig: { defaults: { color: { mode: p.type === 'timeseries' ? 'palette-classic' : 'thresholds' }, thresholds: { mode: 'absolute', steps: [{ color: 'green', value: -Infinity }] }, ...fc.defaults } as any, overrides: fc.overrides ?? [] }, replaceVariables: sub, theme, timeZone: 'utc', fieldConfigRegistry: registry(fc) });
}
function Timeline({ p, data, w, h }: any) {
  // Grafana's own lives in its core, not in @grafana/ui: rows of merged states, drawn here.
  const label = Math.min(220, 12 + 7 * Math.max(...data.map((f: any) => (f.fields[1].config.displayNameFromDS ?? '').length))), axis = 22, row = Math.min(34, (h - axis) / data.length);
  const x = (t: number) => label + (t - from) / (to - from) * (w - label - 4);
  const ticks = [...Array(5)].map((_, i) => from + (i + .5) * (to - from) / 5);
  return <svg width={w} height={h} style={{ fontFamily: 'Inter, sans-serif', fontSize: 12 }}>
    {data.map((f: any, r: number) => {
      const [time, value] = f.fields, spans: any[] = [];
      for (let i = 0; i < value.values.length; i++) {
        const d = value.display(value.values[i]), shown = (d.prefix ?? '') + d.text + (d.suffix ?? ''), t = time.values[i], last = spans.at(-1);
        if (last && last.shown === shown && t - last.end <= 3 * step * 1000) last.end = t; else { if (last && t - last.end <= 3 * step * 1000) last.end = t; spans.push({ shown, color: d.color, begin: t, end: t + step * 1000 }); }
      }
      return <g key={r}><text x={label - 8} y={r * row + row / 2 + 4} textAnchor="end" fill={theme.colors.text.primary}>{value.config.displayNameFromDS}</text>
        {spans.map((s, i) => { const a = x(s.begin), b = Math.max(a + 1, x(s.end)); return <g key={i}><rect x={a} y={r * row + row * .08} width={b - a} height={row * .84} fill={s.color === 'transparent' ? 'none' : s.color} fillOpacity={.75} />{b - a > 7 * s.shown.length + 8 && <text x={a + 4} y={r * row + row / 2 + 4} fill={s.color === 'transparent' ? theme.colors.text.secondary : '#fff'}>{s.shown}</text>}</g>; })}</g>;
    })}
    {ticks.map((t, i) => <text key={i} x={x(t)} y={Math.min(h, data.length * row + axis) - 6} textAnchor="middle" fill={theme.colors.text.secondary}>{new Date(t).toISOString().slice(11, 16)}</text>)}
  </svg>;
}
function Body({ p, data, w, h }: any) {
  if (p.type === 'text') return <div style={{ padding: 8 }}>{p.options?.content}</div>;
  if (!data.length && p.type !== 'stat') return <div data-empty style={{ color: theme.colors.text.secondary, textAlign: 'center' }}>{p.fieldConfig?.defaults?.noValue ?? 'No data'}</div>;
  if (p.type === 'timeseries') return <TimeSeries frames={data} width={w} height={h} timeRange={range} timeZone="utc" legend={{ showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [], ...(p.options?.legend ?? {}) } as any} options={p.options ?? {}} />;
  const vals = () => getFieldDisplayValues({ fieldConfig: p.fieldConfig, reduceOptions: { calcs: ['lastNotNull'], values: false, ...(p.options?.reduceOptions ?? {}) }, replaceVariables: sub, theme, data, sparkline: p.options?.graphMode !== 'none', timeZone: 'utc' });
  if (p.type === 'stat') { const v = vals(); return <div style={{ display: 'flex' }}>{v.map((d, i) => <BigValue key={i} text={p.options?.text} value={d.display} count={v.length} sparkline={d.sparkline} colorMode={p.options?.colorMode ?? 'value'} graphMode={p.options?.graphMode ?? 'area'} justifyMode={p.options?.justifyMode ?? 'auto'} textMode={p.options?.textMode ?? 'auto'} width={w / v.length} height={h} theme={theme} />)}</div>; }
  if (p.type === 'bargauge' || p.type === 'gauge') { const v = vals(); return <div>{v.map((d, i) => <BarGauge key={i} text={p.options?.text} valueDisplayMode={p.options?.valueMode} alignmentFactors={getDisplayValueAlignmentFactors(v)} showUnfilled value={d.display} field={d.field} display={d.view?.getFieldDisplayProcessor(d.colIndex!)} theme={theme} width={w} height={Math.min(h / v.length, p.options?.maxVizHeight ?? 300)} orientation={(p.options?.orientation === 'vertical' ? 'vertical' : 'horizontal') as any} displayMode={p.options?.displayMode ?? 'gradient'} itemSpacing={8} lcdCellWidth={8} />)}</div>; }
  if (p.type === 'table') return <Table data={data[0]} width={w} height={h} initialSortBy={p.options?.sortBy ?? []} />;
  if (p.type === 'state-timeline') return <Timeline p={p} data={data} w={w} h={h} />;
  return <div data-unsupported>unsupported: {p.type}</div>;
}
function Panel({ p, cell }: any) {
  const [s, set] = React.useState<any>({ st: 'loading' });
  React.useEffect(() => { load(p).then(data => set({ st: 'done', data })).catch(e => set({ st: 'error', e: String(e) })); }, []);
  const g = p.gridPos, w = g.w * cell - 8, h = g.h * 38 - 8;
  return <div data-panel={p.title} data-state={s.st} data-series={s.data?.length ?? ''} data-error={s.e ?? ''} style={{ position: 'absolute', left: g.x * cell, top: g.y * 38, width: w, height: h }}>
    <PanelChrome title={sub(p.title ?? '')} description={p.description} width={w} height={h} statusMessage={s.e}>{(iw: number, ih: number) => s.st === 'done' ? <Body p={p} data={s.data} w={iw} h={ih} /> : <div>{s.e ?? '…'}</div>}</PanelChrome></div>;
}
(async () => {
  const d = await (await fetch(q.get('d') ?? '/dash.json')).json();
  await resolve(d);
  const rows = d.panels.flatMap((p: any) => p.type === 'row' ? [p, ...(p.panels ?? [])] : [p]);
  const W = innerWidth - 16, cell = W / 24, H = Math.max(...rows.map((p: any) => p.gridPos.y + p.gridPos.h)) * 38;
  createRoot(document.getElementById('root')!).render(<ThemeContext.Provider value={theme}><GlobalStyles /><div style={{ background: theme.colors.background.canvas, minHeight: H + 60, padding: 8 }}><h3 style={{ margin: 8 }}>{d.title}</h3><div style={{ position: 'relative', height: H }}>{rows.map((p: any, i: number) => p.type === 'row' ? <h5 key={i} style={{ position: 'absolute', top: p.gridPos.y * 38 + 8, left: 4 }}>⌄ {p.title}</h5> : <Panel key={i} p={p} cell={cell} />)}</div></div></ThemeContext.Provider>);
})();
