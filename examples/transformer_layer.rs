//! One layer of a transformer, tensor parallel: each rank has some of the heads and of the feed-forward's columns, and between the
//! halves of the layer some of the rows. Each half begins by an all-gather + GEMM and ends by a GEMM + reduce-scatter. Attention,
//! activation and norm, which need no other rank, run on the host. The result is compared with the whole layer in f64.
//!
//! `symmem run -n 2 -- target/debug/examples/transformer_layer`

use half::bf16;
use symmem::{
    AllGatherGemm, Communicator, GemmOptions, GemmReduce, GemmReduceOperands, GemmReduceOptions,
    GemmReduceShape, GemmShape, Matrix, Operands, Stream, SymmetricBuffer,
};

const HEAD: usize = 8;
const HEADS_OF_A_RANK: usize = 2;
const ROWS_OF_A_RANK: usize = 8;

/// A matrix on the host, by rows.
#[derive(Clone)]
struct Host {
    columns: usize,
    numbers: Vec<f64>,
}

impl Host {
    fn rows(&self) -> usize {
        self.numbers.len() / self.columns
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.numbers[row * self.columns + column]
    }

    fn from(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        let numbers = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self {
            columns,
            numbers: numbers.map(|(row, column)| at(row, column)).collect(),
        }
    }

    /// Small numbers of both signs, the same on all ranks and exact in bf16.
    fn weights(seed: usize, rows: usize, columns: usize) -> Self {
        Self::from(rows, columns, |row, column| {
            ((seed + row * 7 + column * 13 + row * column) % 9) as f64 / 16.0 - 0.25
        })
    }

    fn times(&self, other: &Self) -> Self {
        Self::from(self.rows(), other.columns, |row, column| {
            let along = 0..self.columns;
            along
                .map(|at| self.at(row, at) * other.at(at, column))
                .sum()
        })
    }

    fn plus(&self, other: &Self) -> Self {
        Self::from(self.rows(), self.columns, |row, column| {
            self.at(row, column) + other.at(row, column)
        })
    }

    fn columns_of(&self, first: usize, columns: usize) -> Self {
        Self::from(self.rows(), columns, |row, column| {
            self.at(row, first + column)
        })
    }

    fn rows_of(&self, first: usize, rows: usize) -> Self {
        Self::from(rows, self.columns, |row, column| {
            self.at(first + row, column)
        })
    }
}

/// Each row divided by the root of its mean square.
fn norm(x: &Host) -> Host {
    Host::from(x.rows(), x.columns, |row, column| {
        let squares = (0..x.columns).map(|at| x.at(row, at).powi(2)).sum::<f64>();
        x.at(row, column) / (squares / x.columns as f64 + 1e-5).sqrt()
    })
}

/// Attention of each row to those before it. A head's query, key and value are beside each other.
fn attend(query_key_value: &Host) -> Host {
    let heads = query_key_value.columns / (3 * HEAD);
    let of = |row: usize, head: usize, which: usize, at: usize| {
        query_key_value.at(row, head * 3 * HEAD + which * HEAD + at)
    };
    let shares = |row: usize, head: usize| {
        let score = |other: usize| -> f64 {
            let products = (0..HEAD).map(|at| of(row, head, 0, at) * of(other, head, 1, at));
            (products.sum::<f64>() / (HEAD as f64).sqrt()).exp()
        };
        let scores: Vec<f64> = (0..=row).map(score).collect();
        let all: f64 = scores.iter().sum();
        scores
            .into_iter()
            .map(move |score| score / all)
            .collect::<Vec<_>>()
    };
    let shares: Vec<Vec<Vec<f64>>> = (0..query_key_value.rows())
        .map(|row| (0..heads).map(|head| shares(row, head)).collect())
        .collect();
    Host::from(query_key_value.rows(), heads * HEAD, |row, column| {
        let (head, at) = (column / HEAD, column % HEAD);
        let values = shares[row][head].iter().enumerate();
        values
            .map(|(other, share)| share * of(other, head, 2, at))
            .sum()
    })
}

fn activate(x: &Host) -> Host {
    Host::from(x.rows(), x.columns, |row, column| {
        x.at(row, column).max(0.0)
    })
}

/// The layer's weights.
struct Weights {
    query_key_value: Host,
    out: Host,
    up: Host,
    down: Host,
}

/// The whole layer on one rank.
fn whole(w: &Weights, x: &Host) -> Host {
    let attended = attend(&norm(x).times(&w.query_key_value));
    let x = x.plus(&attended.times(&w.out));
    let up = activate(&norm(&x).times(&w.up));
    x.plus(&up.times(&w.down))
}

/// One half of a layer on one rank: an all-gather + GEMM, what is done on the host, and a GEMM + reduce-scatter.
struct Half {
    first: AllGatherGemm<bf16>,
    second: GemmReduce<bf16>,
    rows: SymmetricBuffer<bf16>,
    first_weights: SymmetricBuffer<bf16>,
    between: SymmetricBuffer<bf16>,
    inner: SymmetricBuffer<bf16>,
    second_weights: SymmetricBuffer<bf16>,
    result: SymmetricBuffer<bf16>,
    sizes: [usize; 4],
}

fn write(buffer: &SymmetricBuffer<bf16>, stream: &Stream, x: &Host) -> symmem::Result<()> {
    let numbers: Vec<bf16> = x.numbers.iter().map(|&one| bf16::from_f64(one)).collect();
    buffer.write(stream, 0, &numbers)
}

fn read(buffer: &SymmetricBuffer<bf16>, stream: &Stream, columns: usize) -> symmem::Result<Host> {
    let mut numbers = vec![bf16::ZERO; buffer.len()];
    buffer.read(stream, 0, &mut numbers)?;
    let numbers = numbers.into_iter().map(bf16::to_f64).collect();
    Ok(Host { columns, numbers })
}

impl Half {
    /// Prepares a half of `m` rows. Collective.
    fn new(
        communicator: &Communicator,
        stream: &Stream,
        m: usize,
        first: &Host,
        second: &Host,
    ) -> symmem::Result<Self> {
        let (hidden, between, inner) = (first.rows(), first.columns, second.rows());
        let gathered = GemmShape::new(m, between, hidden);
        let reduced = GemmReduceShape::new(m, hidden, inner);
        let allocate = |length: usize| communicator.allocate::<bf16>(&[length]);
        let half = Self {
            first: communicator.all_gather_gemm(&gathered, &GemmOptions::default())?,
            second: communicator.gemm_reduce_scatter(&reduced, &GemmReduceOptions::default())?,
            rows: allocate(ROWS_OF_A_RANK * hidden)?,
            first_weights: allocate(hidden * between)?,
            between: allocate(m * between)?,
            inner: allocate(m * inner)?,
            second_weights: allocate(inner * hidden)?,
            result: allocate(ROWS_OF_A_RANK * hidden)?,
            sizes: [m, hidden, between, inner],
        };
        write(&half.first_weights, stream, first)?;
        write(&half.second_weights, stream, second)?;
        Ok(half)
    }

    /// Returns this rank's rows of the half's result, from its rows of the input.
    fn run(
        &self,
        stream: &Stream,
        x: &Host,
        on_the_host: impl Fn(&Host) -> Host,
    ) -> symmem::Result<Host> {
        let [m, hidden, between, inner] = self.sizes;
        write(&self.rows, stream, x)?;
        let operands = Operands {
            a: self.rows.all(),
            b: Matrix::of(&self.first_weights, hidden, between)?,
            c: Matrix::of(&self.between, m, between)?,
            bias: None,
            scale: None,
            gathered: None,
        };
        stream.all_gather_gemm(&self.first, &operands)?;
        let middle = on_the_host(&read(&self.between, stream, between)?);
        write(&self.inner, stream, &middle)?;
        let operands = GemmReduceOperands {
            a: Matrix::of(&self.inner, m, inner)?,
            b: Matrix::of(&self.second_weights, inner, hidden)?,
            c: Matrix::of(&self.result, ROWS_OF_A_RANK, hidden)?,
            bias: None,
        };
        stream.gemm_reduce(&self.second, &operands)?;
        read(&self.result, stream, hidden)
    }
}

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (m, hidden, ffn) = (ROWS_OF_A_RANK * world, 32, 24 * world);
    let attention = HEADS_OF_A_RANK * HEAD * world;
    let weights = Weights {
        query_key_value: Host::weights(1, hidden, 3 * attention),
        out: Host::weights(2, attention, hidden),
        up: Host::weights(3, hidden, ffn),
        down: Host::weights(4, ffn, hidden),
    };
    let x = Host::weights(5, m, hidden);
    let expected = whole(&weights, &x);

    let stream = communicator.stream()?;
    let (own_heads, own_ffn) = (attention / world, ffn / world);
    let query_key_value = weights
        .query_key_value
        .columns_of(rank * 3 * own_heads, 3 * own_heads);
    let out = weights.out.rows_of(rank * own_heads, own_heads);
    let up = weights.up.columns_of(rank * own_ffn, own_ffn);
    let down = weights.down.rows_of(rank * own_ffn, own_ffn);
    let attends = Half::new(&communicator, &stream, m, &query_key_value, &out)?;
    let feeds_forward = Half::new(&communicator, &stream, m, &up, &down)?;

    let mine = x.rows_of(rank * ROWS_OF_A_RANK, ROWS_OF_A_RANK);
    let mine = mine.plus(&attends.run(&stream, &norm(&mine), attend)?);
    let mine = mine.plus(&feeds_forward.run(&stream, &norm(&mine), activate)?);

    let expected = expected.rows_of(rank * ROWS_OF_A_RANK, ROWS_OF_A_RANK);
    let pairs = mine.numbers.iter().zip(&expected.numbers);
    let worst = pairs
        .map(|(made, exact)| (made - exact).abs())
        .fold(0.0, f64::max);
    let largest = expected
        .numbers
        .iter()
        .fold(0.0, |most: f64, one| most.max(one.abs()));
    // bf16 has three digits, and a layer rounds a number about ten times.
    assert!(worst <= largest / 25.0, "off by {worst} of {largest}");
    println!("rank {rank} of {world}: a layer of {m} rows, as on one rank");
    communicator.finalize().map(drop)
}
