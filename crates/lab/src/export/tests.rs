use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::RowAccessor;

use super::*;
use crate::metrics::evaluate;
use crate::metrics::testing::{invented_rows, invented_run};
use crate::store::testing::put;

/// A store with two seeds of two arms; one run has texts that need quoting in CSV.
fn stored() -> (tempfile::TempDir, [Store; 1]) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    let (experiment, _) = invented_run();
    for (arm, seed) in [("status_quo", 1), ("status_quo", 2), ("copa_sfq", 1), ("copa_sfq", 2)] {
        let mut experiment = experiment.clone();
        (experiment.arm, experiment.seed) = (arm.into(), seed);
        let rows = invented_rows(&experiment, 1.0 + seed as f64);
        let mut evaluation = evaluate(&experiment, &rows).unwrap();
        if (arm, seed) == ("copa_sfq", 2) {
            evaluation.invalid = vec!["late, \"very\"".into()];
        }
        put(&mut store, &experiment, "emu", &evaluation);
    }
    (folder, [store])
}

fn choice(plans: &[&str], arms: &[&str], metrics: &[&str]) -> Choice {
    let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Choice { plans: list(plans), arms: list(arms), metrics: list(metrics) }
}

/// The lines of each table's file, by the name of the table.
fn lines(stores: &[Store], choice: &Choice) -> impl Fn(&str) -> Vec<String> + use<> {
    let out = tempfile::tempdir().unwrap();
    let paths = export(stores, choice, Format::Csv, &out.path().join("made")).unwrap();
    let texts: Vec<String> =
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    move |table| {
        let file = format!("{table}.csv");
        let place = paths.iter().position(|path| path.ends_with(&file)).unwrap();
        texts[place].lines().map(String::from).collect()
    }
}

#[test]
fn every_table_has_a_head_and_its_rows() {
    let (_folder, store) = stored();
    let of = lines(&store, &Choice::default());
    assert!(of("runs")[0].starts_with("id,plan,arm,cell,seed,"), "{:?}", of("runs"));
    assert!(of("runs")[4].contains("\"[\"\"late, \\\"\"very\\\"\"\"\"]\""), "{:?}", of("runs"));
    assert_eq!(of("series")[0], "id,run,part,name,quantity");
    assert_eq!(of("samples")[0], "series,number,at_s,value");
    let summary = of("summary");
    let expected = "plan,cell,arm,backend,runs,part,name,metric,value,least,p5,median,p95,greatest";
    assert_eq!(summary[0], expected);
    let slowdown = summary.iter().find(|it| it.contains(",status_quo,emu,2,run,,slowdown_p50,"));
    let cells: Vec<&str> = slowdown.unwrap().split(',').collect();
    let near = |cell: &str, expected: f64| (cell.parse::<f64>().unwrap() - expected).abs() < 1e-3;
    assert!(near(cells[9], 2.0) && near(cells[11], 2.5) && near(cells[13], 3.0), "{cells:?}");
    assert!(
        summary.iter().any(|it| it.contains(",copa_sfq,emu,1,link,forward,")),
        "one is invalid"
    );
}

#[test]
fn selection_filters_every_table() {
    let (_folder, store) = stored();
    let all = lines(&store, &Choice::default());
    let of = lines(&store, &choice(&[], &["copa_sfq"], &["queue_packets", "slowdown_p50"]));
    assert_eq!((all("runs").len(), of("runs").len()), (5, 3));
    for table in ["flows", "links", "requests"] {
        assert_eq!(2 * (of(table).len() - 1), all(table).len() - 1, "{table}");
    }
    let metrics = of("metrics");
    assert!(metrics.len() > 1 && metrics[1..].iter().all(|it| it.contains(",slowdown_p50,")));
    let series = of("series");
    assert!(series.len() > 1 && series[1..].iter().all(|it| it.ends_with(",queue_packets")));
    let ids: Vec<&str> = series[1..].iter().map(|it| it.split(',').next().unwrap()).collect();
    let samples = of("samples");
    let is_of_one = |sample: &String| ids.contains(&sample.split(',').next().unwrap());
    assert!(samples.len() > 1 && samples[1..].iter().all(is_of_one));
    let is_chosen = |it: &String| it.contains(",copa_sfq,") && it.contains(",slowdown_p50,");
    assert!(of("summary")[1..].iter().all(is_chosen));
}

#[test]
fn unknown_names_are_refused_with_known_ones() {
    let (folder, store) = stored();
    let refusal = |choice: &Choice| {
        let out = folder.path().join("nothing");
        let error = export(&store, choice, Format::Csv, &out).unwrap_err();
        assert!(error.is_bad_input() && !out.exists());
        error.to_string()
    };
    let arm = refusal(&choice(&[], &["copa"], &[]));
    assert_eq!(arm, "--arm copa: allowed is one of copa_sfq, status_quo");
    assert!(refusal(&choice(&["none"], &[], &[])).starts_with("--plan none: allowed is one of "));
    assert!(refusal(&choice(&[], &[], &["slow"])).contains(", slowdown_p50, "));
    let empty = Store::create(&folder.path().join("empty")).unwrap();
    let error = export(&[empty], &choice(&["none"], &[], &[]), Format::Csv, folder.path());
    let expected = "--plan none: allowed is none, because the store has no runs";
    assert_eq!(error.unwrap_err().to_string(), expected);
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = export(&store, &Choice::default(), Format::Csv, &file.join("below")).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("file/below"), "{error}");
}

#[test]
fn parquet_matches_csv_rows_with_types() {
    let (folder, store) = stored();
    let out = folder.path().join("parquet");
    let csv = lines(&store, &Choice::default());
    for path in export(&store, &Choice::default(), Format::Parquet, &out).unwrap() {
        let table = path.file_stem().unwrap().to_str().unwrap().to_string();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        let names: Vec<&str> =
            metadata.schema_descr().columns().iter().map(|column| column.name()).collect();
        assert_eq!(names.join(","), csv(&table)[0]);
        // Texts may have line breaks, so their rows in CSV have them, too.
        let texts = ["plans", "figures", "runs"];
        if !texts.contains(&table.as_str()) {
            assert_eq!(metadata.num_rows() as usize, csv(&table).len() - 1, "{table}");
        }
    }
    let file = File::open(out.join("requests.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    for (row, line) in rows.zip(&csv("requests")[1..]) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(row.get_string(1).unwrap(), cells[1]);
        assert_eq!(row.get_long(4).unwrap().to_string(), cells[4]);
        let finished = row.get_long(7).map_or(String::new(), |at_ns| at_ns.to_string());
        assert_eq!(finished, cells[7], "nothing where it did not finish");
        assert_eq!(row.get_double(10).unwrap().to_string(), cells[10]);
    }
}

#[test]
fn benchmark_stores_merge_with_distinct_runs_and_series() {
    let ((_one, one), (_two, two)) = (stored(), stored());
    let alone = lines(&one, &Choice::default());
    let [one, two] = [one, two].map(|[store]| store);
    let both = lines(&[one, two], &Choice::default());
    for table in ["runs", "requests", "series", "samples", "summary"] {
        assert_eq!(both(table).len() - 1, 2 * (alone(table).len() - 1), "{table}");
    }
    let first = |line: &String| line.split(',').next().unwrap().parse::<i64>().unwrap();
    let ids = |table: &str| both(table)[1..].iter().map(first).collect::<Vec<_>>();
    assert_eq!(ids("runs"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ids("requests").into_iter().max(), Some(8));
    let series: BTreeSet<i64> = ids("series").into_iter().collect();
    assert_eq!(series.len(), both("series").len() - 1, "no two have one number");
    assert!(ids("samples").iter().all(|id| series.contains(id)));
}
