//! The messages of ONNX that policies have (onnx.proto3 of onnx/onnx, which numbers the fields).

use std::collections::BTreeMap;

use crate::error::{Refused, printable};
use crate::wire::Fields;

/// Most numbers of a tensor of integers, which here is a shape.
const INTEGERS_MAX: usize = 8;
/// Most inputs of a node, which are the parts that a `Concat` joins.
const INPUTS_MAX: usize = 256;
/// `TensorProto.DataType` of 32-bit floats, in `onnx.proto`.
const FLOAT: i64 = 1;
/// `TensorProto.DataType` of 64-bit integers, in `onnx.proto`; for shapes.
const INT64: i64 = 7;
/// `AttributeProto.AttributeType` of a single float, in `onnx.proto`.
const FLOAT_ATTRIBUTE: i64 = 1;
/// `AttributeProto.AttributeType` of a single integer, in `onnx.proto`.
const INT_ATTRIBUTE: i64 = 2;

/// `ModelProto`.
pub struct Model<'a> {
    /// Version of ONNX's own operators that the model was written for.
    pub opset: Option<i64>,
    /// `GraphProto`, in bytes.
    pub graph: Option<&'a [u8]>,
}

impl<'a> Model<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Refused> {
        let mut model = Self { opset: None, graph: None };
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                7 => model.graph = Some(field.bytes()?),
                8 => {
                    let (mut domain, mut version) = ("", 0);
                    for field in Fields::of(field.bytes()?) {
                        let field = field?;
                        match field.number {
                            1 => domain = field.text()?,
                            2 => version = field.integer()?,
                            _ => {}
                        }
                    }
                    if domain.is_empty() || domain == "ai.onnx" {
                        model.opset = Some(version);
                    }
                }
                _ => {}
            }
        }
        Ok(model)
    }
}

/// `GraphProto`, whose parts are messages in bytes.
#[derive(Default)]
pub struct Graph<'a> {
    pub nodes: Vec<&'a [u8]>,
    pub initializers: Vec<&'a [u8]>,
    pub inputs: Vec<&'a [u8]>,
    pub outputs: Vec<&'a [u8]>,
}

impl<'a> Graph<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Refused> {
        let mut graph = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => graph.nodes.push(field.bytes()?),
                5 => graph.initializers.push(field.bytes()?),
                11 => graph.inputs.push(field.bytes()?),
                12 => graph.outputs.push(field.bytes()?),
                15 => return Err(Refused::new("a sparse initializer", "dense ones")),
                _ => {}
            }
        }
        Ok(graph)
    }
}

/// `ValueInfoProto`.
pub struct ValueInfo<'a> {
    pub name: &'a str,
    /// Dimensions; `None`: one that has a name or nothing instead of a size.
    pub shape: Option<Vec<Option<i64>>>,
    pub is_float: bool,
}

impl<'a> ValueInfo<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Refused> {
        let mut value = Self { name: "", shape: None, is_float: false };
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => value.name = field.text()?,
                // TypeProto, whose field 1 describes a tensor.
                2 => {
                    for field in Fields::of(field.bytes()?) {
                        let field = field?;
                        if field.number == 1 {
                            value.read_tensor_type(field.bytes()?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(value)
    }

    fn read_tensor_type(&mut self, message: &[u8]) -> Result<(), Refused> {
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => self.is_float = field.integer()? == FLOAT,
                2 => {
                    let sizes = Fields::of(field.bytes()?).map(|it| dimension(it?.bytes()?));
                    self.shape = Some(sizes.collect::<Result<_, _>>()?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn dimension(message: &[u8]) -> Result<Option<i64>, Refused> {
    let mut size = None;
    for field in Fields::of(message) {
        let field = field?;
        if field.number == 1 {
            size = Some(field.integer()?);
        }
    }
    Ok(size)
}

/// The numbers of a `TensorProto`.
pub enum Numbers {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

/// `TensorProto`.
pub struct Tensor<'a> {
    pub name: &'a str,
    pub shape: Vec<usize>,
    pub numbers: Numbers,
}

impl<'a> Tensor<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Refused> {
        let (mut name, mut dims, mut data_type, mut raw) = ("", Vec::new(), 0, None);
        let (mut floats, mut integers) = (Vec::new(), Vec::new());
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => field.integers(&mut dims)?,
                2 => data_type = field.integer()?,
                4 => field.floats(&mut floats)?,
                7 => field.integers(&mut integers)?,
                8 => name = field.text()?,
                9 => raw = Some(field.bytes()?),
                13 | 14 if field.integer() != Ok(0) => {
                    return Err(Refused::new("numbers in another file", "numbers in the model"));
                }
                _ => {}
            }
        }
        let sizes = dims.iter().map(|size| usize::try_from(*size).ok());
        let shape: Option<Vec<usize>> = sizes.collect();
        let shape = shape.ok_or_else(|| Refused::new("a negative dimension", "1 or more"))?;
        let known = printable(name);
        let cut = || Refused::new(format!("{known}: data cut within a number"), "whole numbers");
        let numbers = match (data_type, raw) {
            (FLOAT, None) => Numbers::Floats(floats),
            (FLOAT, Some(raw)) => {
                let (numbers, []) = raw.as_chunks::<4>() else { return Err(cut()) };
                Numbers::Floats(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
            (INT64, None) => Numbers::Integers(integers),
            (INT64, Some(raw)) => {
                let (numbers, []) = raw.as_chunks::<8>() else { return Err(cut()) };
                Numbers::Integers(numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
            }
            (other, _) => {
                let allowed = "FLOAT (1), and INT64 (7) for shapes";
                return Err(Refused::new(format!("{known}: numbers of type {other}"), allowed));
            }
        };
        if let Numbers::Integers(numbers) = &numbers
            && numbers.len() > INTEGERS_MAX
        {
            let what = format!("{known}: {} integers", numbers.len());
            return Err(Refused::new(what, format!("at most {INTEGERS_MAX}, for a shape")));
        }
        Ok(Self { name, shape, numbers })
    }
}

/// `AttributeProto`, with those values that it has.
#[derive(Default)]
pub struct Attribute<'a> {
    pub float: Option<f32>,
    pub integer: Option<i64>,
    pub text: Option<&'a [u8]>,
    pub tensor: Option<&'a [u8]>,
    pub floats: Vec<f32>,
}

/// `NodeProto`.
#[derive(Default)]
pub struct Node<'a> {
    pub name: &'a str,
    pub op_type: &'a str,
    pub domain: &'a str,
    /// Names of values; one that is empty stands for an optional input that is left out.
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    pub attributes: BTreeMap<&'a str, Attribute<'a>>,
}

impl<'a> Node<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Refused> {
        let mut node = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => node.inputs.push(field.text()?),
                2 => node.outputs.push(field.text()?),
                3 => node.name = field.text()?,
                4 => node.op_type = field.text()?,
                5 => node.read_attribute(field.bytes()?)?,
                7 => node.domain = field.text()?,
                _ => {}
            }
        }
        if node.inputs.len() > INPUTS_MAX {
            let what = format!("a node of {} inputs", node.inputs.len());
            return Err(Refused::new(what, format!("at most {INPUTS_MAX}")));
        }
        Ok(node)
    }

    fn read_attribute(&mut self, message: &'a [u8]) -> Result<(), Refused> {
        let (mut name, mut attribute, mut sort) = ("", Attribute::default(), 0);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => name = field.text()?,
                2 => attribute.float = Some(field.float()?),
                3 => attribute.integer = Some(field.integer()?),
                4 => attribute.text = Some(field.bytes()?),
                5 => attribute.tensor = Some(field.bytes()?),
                7 => field.floats(&mut attribute.floats)?,
                20 => sort = field.integer()?,
                _ => {}
            }
        }
        // By the schema of proto3, which ONNX also has, a zero is not written.
        match sort {
            FLOAT_ATTRIBUTE => attribute.float = attribute.float.or(Some(0.0)),
            INT_ATTRIBUTE => attribute.integer = attribute.integer.or(Some(0)),
            _ => {}
        }
        if self.attributes.insert(name, attribute).is_some() {
            let what = format!("{} given twice", printable(name));
            return Err(Refused::new(what, "each attribute once"));
        }
        Ok(())
    }
}
